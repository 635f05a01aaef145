"""benchmarks/memory.py measures a known amount of memory."""

import torch

from benchmarks import memory

MIB = 2**20


class Holding:
    """Keeps 4 MiB more after every step, and temporarily uses as much again."""

    def __init__(self):
        self.kept = []

    def step(self):
        made = torch.ones(2, 4 * MIB // 4)
        self.kept.append(made[0].clone())


def test_a_known_peak():
    held = torch.ones(MIB)  # allocated before, so not counted
    arm, found = memory.peak_of(Holding, steps=3)
    # After two steps 8 MiB are kept. The third makes 8 more and copies 4 of them.
    assert found == 20 * MIB and len(arm.kept) == 3 and held.sum() == MIB


def test_earlier_garbage_does_not_count():
    loop = [torch.ones(5 * MIB)]
    loop.append(loop)
    del loop
    assert memory.peak_of(Holding, steps=1)[1] == 12 * MIB
