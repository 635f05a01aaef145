"""Fixtures for tests on a GPU. Shorter versions of the tests run on the CPU, so that they work before there is a GPU."""

import pytest
import torch

from tests.support.commands import TINY

_GPU = pytest.param(
    "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU on this machine")
)


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


@pytest.fixture(params=["cpu", _GPU])
def device(request):
    return request.param


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
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)
