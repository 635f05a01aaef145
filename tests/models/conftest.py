"""Fixtures for tests of whole models."""

import pytest
import torch


@pytest.fixture(autouse=True)
def seed():
    """Make random inputs independent of the order of the tests."""
    torch.manual_seed(1)


@pytest.fixture
def exact_softmax(monkeypatch):
    """Make fairseq's attention compute its softmax in the model's dtype. It uses float32 even in a float64 model."""
    monkeypatch.setattr("fairseq.utils.softmax", lambda x, dim, onnx_trace=False: x.softmax(dim))
