"""Peak memory of training steps: maximum bytes of all tensors of a model and its trainer.

It counts parameters, gradients, optimizer state and activations, on a CPU as ``torch.cuda.max_memory_allocated`` does on a CUDA device.
It does not count memory that operations allocate outside torch, or that an allocator keeps after tensors are freed. The resident
memory of a process includes both, but differed by 10 % between processes with the same model.
"""

import gc

import torch
from torch.profiler import ProfilerActivity, profile


def peak_of(make_arm, steps, cuda=False):
    """Create an arm and run some steps. Return the arm and its peak memory in bytes.

    Args:
        make_arm: function without arguments that returns an object with ``step()``.
        steps: number of calls of ``step``. The optimizer has its state after the first.
        cuda: measure the memory of the current CUDA device.
    """
    gc.collect()  # older tensors that are freed later would distort the result
    return (_on_cuda if cuda else _on_cpu)(make_arm, steps)


def _run(make_arm, steps):
    arm = make_arm()
    for _ in range(steps):
        arm.step()
    return arm


def _on_cuda(make_arm, steps):
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    arm = _run(make_arm, steps)
    return arm, torch.cuda.max_memory_allocated() - before


def _on_cpu(make_arm, steps):
    """Compute the peak from torch's profiler, because torch does not count memory on a CPU."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        arm = _run(make_arm, steps)
    changes = [event for event in profiled.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = highest = 0
    for change in sorted(changes, key=lambda event: event.start_ns()):
        held += change.nbytes()
        highest = max(highest, held)
    return arm, highest
