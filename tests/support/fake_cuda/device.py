"""A fake GPU: torch.cuda reports one device, and tensors on it have shapes, dtypes and a device, but no values."""

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
    """Context in which ``torch.cuda`` has one device, and tensors moved to it lose their values.

    ``library.load`` must be called before torch is imported. A tensor on the CPU keeps its values until an operation uses it.
    """
    with ExitStack() as stack:
        for name, answer in _ANSWERS.items():
            stack.enter_context(patch.object(torch.cuda, name, answer))
        stack.enter_context(patch.object(torch.cuda.amp.common, "amp_definitely_not_available", lambda: False))
        stack.enter_context(patch.object(torch, "Generator", _Generator))
        # fairseq creates a tensor of sizes and reads its length. It is really on the CPU, so this is not a synchronisation.
        stack.enter_context(patch.object(torch.onnx.operators, "shape_as_tensor", lambda x: list(x.shape)))
        stack.enter_context(patch.object(torch._VF, "gru", _checked(torch._VF.gru)))
        yield stack.enter_context(CountingMode())


def _checked(gru):
    """Check that all weights have one dtype, which cuDNN's GRU needs even under autocast. torch's own GRU, used here, does not."""

    def checked(x, hidden, weights, *options):
        if len({weight.dtype for weight in weights}) > 1:
            raise RuntimeError("Weight scalar types do not match.")
        return gru(x, hidden, weights, *options)

    return checked
