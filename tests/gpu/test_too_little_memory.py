"""An arm of a benchmark that does not fit on the device is marked, and the others are still timed."""

import gc
import resource
from pathlib import Path

import pytest
import torch

from benchmarks import pairs, step_time

FLAGS = (
    "--arch transformer --encoder-layers 1 --decoder-layers 1 --encoder-embed-dim 10"
    " --encoder-attention-heads 2 --decoder-attention-heads 2"
)


@pytest.fixture
def almost_no_memory(device):
    """Allow 2 MiB of a GPU, or 1 GiB of address space on the CPU in addition to the memory in use."""
    if device == "cuda":
        gc.collect()  # memory of earlier tests, which torch would use
        torch.cuda.empty_cache()
        whole = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(2 * 2**20 / whole)
        yield
        torch.cuda.set_per_process_memory_fraction(1.0)
    else:
        before = resource.getrlimit(resource.RLIMIT_AS)
        mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (mapped + 2**30, before[1]))
        yield
        resource.setrlimit(resource.RLIMIT_AS, before)


def test_the_arm_is_absent(device, almost_no_memory):
    """Each matrix of the feed-forward block has 40 MB on a GPU, and 4 GB on a CPU, independent of the machine's memory."""
    width = 10**6 if device == "cuda" else 10**8
    given = step_time.read_arguments(["--max-tokens", "20", "--length", "5", "--words", "20", "--device", device])
    arm = step_time.build("large", f"{FLAGS} --encoder-ffn-embed-dim {width}", given)
    assert isinstance(arm, pairs.Absent) and arm.reason.startswith("too little memory: ")
