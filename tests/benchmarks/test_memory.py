"""benchmarks/memory.py: a known amount of memory, in a process of its own."""

import torch

from benchmarks import memory

MIB = 2**20


class Holding:
    """Keeps ``mib`` more with every step, and meanwhile has twice as much again."""

    def __init__(self, mib):
        self.mib, self.kept = mib, []

    def step(self):
        made = torch.ones(2, self.mib * MIB // 4)
        self.kept.append(made[0].clone())


def test_a_known_peak():
    here = torch.ones(300 * MIB // 4)  # not the other process's
    before = memory._resident_now()
    found = memory.peak(Holding, (40,), steps=2)
    # After the first step 40 MiB stay; the second makes 80 and copies 40 of them. The rest is torch's code.
    assert 160 * MIB <= found < 230 * MIB
    assert memory._resident_now() - before < 100 * MIB and here.sum() > 0
