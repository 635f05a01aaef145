"""``--cuda-graphs`` on the fake device: a recorded step may not read values, copy from the CPU, or read memory that is freed later."""

from contextlib import contextmanager
from unittest.mock import patch

import numpy as np
import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fairseq_reservoir.speed.graphs import padding, start, steps

from ..graphs import Rerun
from .reads import CountingMode


class _Inputs(TorchDispatchMode):
    """Collect the tensors on the device that operations read and that were made before."""

    def __init__(self):
        super().__init__()
        self.made, self.read = {}, {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        for x in tree_leaves((args, kwargs)):
            if isinstance(x, torch.Tensor) and x.device.type == "cuda":
                storage = x.untyped_storage()
                if storage._cdata not in self.made and storage._cdata not in self.read:
                    self.read[storage._cdata] = StorageWeakRef(storage), f"{func} reads {tuple(x.shape)} {x.dtype}"
        result = func(*args, **(kwargs or {}))
        for x in tree_leaves(result):
            if isinstance(x, torch.Tensor) and x.device.type == "cuda" and x.untyped_storage()._cdata not in self.read:
                self.made[x.untyped_storage()._cdata] = x  # held, so that its address is not used again
        return result


class Checked(Rerun):
    """Stand-in for ``GraphRecorder`` that raises an error where a recording or a replay would go wrong on a GPU."""

    def __init__(self, counting: CountingMode):
        self.counting = counting

    def record(self, run, needed):
        before = self._counted()
        with _Inputs() as inputs:
            run()
        if self._counted() != before:
            found = (self.counting.reads + self.counting.copies) - before
            raise RuntimeError(f"a recorded step waits or copies: {dict(found)}")
        inputs.made.clear()
        replay = super().record(run, needed)

        def checked():
            for storage, what in inputs.read.values():
                if storage.expired():
                    raise RuntimeError(f"a replay reads memory that has been freed: {what}")
            return replay()

        return checked

    def _counted(self):
        return self.counting.reads + self.counting.copies


@contextmanager
def recording():
    """Record the steps of all trainings with ``Checked``. The fourth batch is padded to a longer bucket than the others."""

    def begin(trainer, masks):
        made = start.use(trainer, masks, Checked(torch.utils._python_dispatch._get_current_dispatch_mode()))
        lengths = 2 if hasattr(trainer.get_model(), "encoder") else 1
        buckets = iter([6, 6, 6, 9, *[6] * 100])

        def padder(sample):
            return padding.Padder(np.array([[4, *[next(buckets)] * lengths]]), padding=1, end=2)(sample)

        made.padder = padder
        return made

    with patch.object(start, "start", begin), patch.object(start, "choose_buckets", lambda *given: None):
        yield


@contextmanager
def forgetting_tensors():
    """``recording`` with a mistake: no recording holds the tensors that fairseq replaces for a longer batch."""
    with recording(), patch.object(steps, "_loose_tensors", lambda model: []):
        yield
