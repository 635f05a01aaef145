"""Fixtures of the tests of modules."""

import pytest
import torch


@pytest.fixture(autouse=True)
def seed():
    """Random inputs are the same in every run and order of the tests."""
    torch.manual_seed(1)
