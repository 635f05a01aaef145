"""Peak memory of training steps: bytes of tensors that torch holds at its highest, for a model, its trainer and their steps.

Parameters, gradients, optimizer state and activations, on a CPU as ``torch.cuda.max_memory_allocated`` counts them on a CUDA device. What
an operation takes past torch's allocator, and what an allocator keeps after tensors are gone, is not in it; the resident memory of a
process has both, but differed by 10 % from one process to the next with the same model.
"""

import gc

import torch
from torch.profiler import ProfilerActivity, profile


def peak_of(make_arm, steps, cuda=False):
    """An arm and its peak memory in bytes.

    Args:
        make_arm: a function of nothing; its result has ``step()``.
        steps: how often ``step`` is called; the optimizer has its state after the first.
        cuda: whether it is the memory of the current CUDA device.
    """
    gc.collect()  # what is freed meanwhile would be taken for the arm's
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
    """torch counts nothing on a CPU, but its profiler sees every tensor come and go."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        arm = _run(make_arm, steps)
    changes = [event for event in profiled.profiler.kineto_results.events() if event.name() == "[memory]"]
    held = highest = 0
    for change in sorted(changes, key=lambda event: event.start_ns()):
        held += change.nbytes()
        highest = max(highest, held)
    return arm, highest
