"""Fixtures for tests of modules."""

import pytest
import torch


@pytest.fixture(autouse=True)
def seed():
    """Make random inputs independent of the order of the tests."""
    torch.manual_seed(1)
