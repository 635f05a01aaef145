"""Fixtures for tests on a GPU. Without a GPU, shorter versions of the tests run on the CPU, so that they work before there is a GPU."""

import os

import pytest
import torch

from benchmarks import in_process
from tests.support.commands import TINY

_GPU = pytest.param(
    "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU on this machine")
)
# Time on a GPU machine is scarce, so nothing runs on its CPU that runs on any other machine.
_DEVICES = ["cuda"] if torch.cuda.is_available() else ["cpu", _GPU]
if torch.cuda.is_available():
    # cuDNN's GRU sums in a fixed order only with this variable, which must be set before cuBLAS starts.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


# Trainings and searches that take long on the CPU and test there what tests of other folders test.
SLOW_ON_CPU = (
    "test_tokens",
    "test_every_phase",
    "test_a_resumed_run_is_the_whole_one",
    "test_at_most_two_waits",
    "test_same_hypotheses_as_fairseq[cpu-fp16",
    "test_accumulated_batches_and_a_freeze_schedule[cpu---update-freq",
    "test_a_graph_is_used_for_later_batches",
)


def pytest_collection_modifyitems(items):
    for item in items:
        if "[cpu" in item.name and item.name.startswith(SLOW_ON_CPU):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(params=_DEVICES)
def device(request):
    return request.param


@pytest.fixture(autouse=True)
def usable_device():
    """After a failed capture of a graph, torch's generator on the device raises errors in later tests. Replace it."""
    yield
    if torch.cuda.is_initialized():
        torch.cuda.set_stream(torch.cuda.default_stream())
        in_process.renew_generator("cuda")


@pytest.fixture
def begin(device):
    """First flags of a command line, to train on the device."""
    return [word for word in TINY if device == "cpu" or word != "--cpu"]


@pytest.fixture
def same_sums(device, monkeypatch):
    """Use full float32 and, as far as torch can, deterministic sums on a GPU, as on a CPU."""
    if device == "cpu":
        yield
        return
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)
