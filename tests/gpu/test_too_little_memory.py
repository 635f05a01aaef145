"""A benchmark's arm that the device cannot hold is marked, and no error ends the others."""

import pytest
import torch

from benchmarks import pairs, step_time

FLAGS = (
    "--arch transformer --encoder-layers 1 --decoder-layers 1 --encoder-embed-dim 10"
    " --encoder-attention-heads 2 --decoder-attention-heads 2"
)


@pytest.fixture
def almost_no_memory(device):
    """2 MiB of a GPU; a CPU has as much as it has."""
    if device == "cuda":
        torch.cuda.empty_cache()
        whole = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(2 * 2**20 / whole)
    yield
    if device == "cuda":
        torch.cuda.set_per_process_memory_fraction(1.0)


def test_the_arm_is_absent(device, almost_no_memory):
    """The two matrices of one feed-forward block: 8 MB for a GPU; for a CPU 80 TB."""
    width = 10**5 if device == "cuda" else 10**12
    given = step_time.read_arguments(["--max-tokens", "20", "--length", "5", "--words", "20", "--device", device])
    arm = step_time.build("large", f"{FLAGS} --encoder-ffn-embed-dim {width}", given)
    assert isinstance(arm, pairs.Absent) and arm.reason.startswith("too little memory: ")
