"""Fixtures of the tests of whole models."""

import pytest
import torch


@pytest.fixture(autouse=True)
def seed():
    """Random inputs are the same in every run and order of the tests."""
    torch.manual_seed(1)


@pytest.fixture
def exact_softmax(monkeypatch):
    """Let fairseq's own attention take its softmax in the model's type; it takes it in float32, also in a float64 model."""
    monkeypatch.setattr("fairseq.utils.softmax", lambda x, dim, onnx_trace=False: x.softmax(dim))
