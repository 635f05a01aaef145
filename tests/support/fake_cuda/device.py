"""A process that believes in one GPU: torch.cuda answers for it, and tensors on it have shapes, types and a device, but no numbers."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from unittest.mock import patch

import torch
import torch.onnx.operators

from .reads import CountingMode

_GPU = SimpleNamespace(name="fake", major=9, minor=0, total_memory=2**36)
_ANSWERS = {
    "is_available": lambda: True,
    "device_count": lambda: 1,
    "current_device": lambda: 0,
    "get_device_capability": lambda device=None: (9, 0),
    "get_device_properties": lambda device=None: _GPU,
    "is_bf16_supported": lambda including_emulation=True: True,
    "empty_cache": lambda: None,
    "max_memory_allocated": lambda device=None: 0,
    "reset_peak_memory_stats": lambda device=None: None,
    "manual_seed": lambda seed: None,
    "manual_seed_all": lambda seed: None,
    "get_rng_state": lambda device=None: None,
    "set_rng_state": lambda state, device=None: None,
}


class _Generator:
    """``torch.Generator`` of the device, which draws nothing."""

    def __new__(cls, device="cpu"):
        return _generator("cpu")


_generator = torch.Generator


@contextmanager
def fake_cuda() -> Iterator[CountingMode]:
    """Inside, ``torch.cuda`` has one device, and a tensor that is moved to it leaves its numbers behind.

    ``library.load`` has been called before torch was imported. A tensor on the CPU stays what it is until something is done with it.
    """
    with ExitStack() as stack:
        for name, answer in _ANSWERS.items():
            stack.enter_context(patch.object(torch.cuda, name, answer))
        stack.enter_context(patch.object(torch.cuda.amp.common, "amp_definitely_not_available", lambda: False))
        stack.enter_context(patch.object(torch, "Generator", _Generator))
        # Makes a tensor of sizes, of which fairseq reads its length: on the CPU in truth, and no wait.
        stack.enter_context(patch.object(torch.onnx.operators, "shape_as_tensor", lambda x: list(x.shape)))
        stack.enter_context(patch.object(torch._VF, "gru", _checked(torch._VF.gru)))
        yield stack.enter_context(CountingMode())


def _checked(gru):
    """cuDNN's GRU takes weights of one type only, under autocast too; torch's own, which runs here, casts them one by one."""

    def checked(x, hidden, weights, *options):
        if len({weight.dtype for weight in weights}) > 1:
            raise RuntimeError("Weight scalar types do not match.")
        return gru(x, hidden, weights, *options)

    return checked
