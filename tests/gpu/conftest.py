"""What runs on a GPU, and in short on the CPU, so that it is known to run before there is one."""

import pytest
import torch

from tests.support.commands import TINY

_GPU = pytest.param(
    "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU on this machine")
)


@pytest.fixture(params=["cpu", _GPU])
def device(request):
    return request.param


@pytest.fixture
def begin(device):
    """The words that a command line begins with, to train on the device."""
    return [word for word in TINY if device == "cpu" or word != "--cpu"]


@pytest.fixture
def same_sums(device, monkeypatch):
    """Sums of full float32 and in the same order each time, as far as torch can do so on a GPU; a CPU's are."""
    if device == "cpu":
        yield
        return
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)
