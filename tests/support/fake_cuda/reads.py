"""Fake tensor mode that counts synchronisations of the host with the device: values read, data-dependent sizes, and copies."""

import math
import sys
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

import fairseq
import numpy as np
import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode
from torch.utils._pytree import tree_leaves

import fairseq_reservoir

OURS, FAIRSEQ = (str(Path(package.__file__).parent) for package in (fairseq_reservoir, fairseq))
_SIZE_FOLLOWS = ("nonzero", "masked_select", "_unique2", "unique_dim", "unique_consecutive")
_CHECKED = ("_linalg_check_errors", "equal")
_INDEXED = ("index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index")
_CARRIED = ("any", "all", "stack", "view", "squeeze", "_to_copy", "detach", "bitwise_or", "logical_or", "clone")


class CountingMode(FakeTensorMode):
    """Mode that counts in ``reads`` and ``copies`` every read of a value on the device and every copy to it, by (what, where).

    The values do not exist, so reads return defaults: all are finite, comparisons are true, other numbers are 1, and a mask selects
    one entry. ``where`` is the innermost line of the package or of fairseq.
    """

    # Otherwise torch would move tensors to the fake device without calling this mode.
    avoid_device_init = True

    def __init__(self) -> None:
        super().__init__(allow_non_fake_inputs=True)
        self.reads: Counter = Counter()
        self.copies: Counter = Counter()
        self.stack_of_patches = ExitStack()
        self.depth = 0

    def __enter__(self):
        if not self.depth:
            # tolist copies a whole tensor without a dispatched operation. Here it reads one value at a time.
            self.stack_of_patches.enter_context(patch.object(torch.Tensor, "numpy", self._numpy(torch.Tensor.numpy)))
        self.depth += 1
        return super().__enter__()

    def __exit__(self, *error):
        super().__exit__(*error)
        self.depth -= 1
        if not self.depth:
            self.stack_of_patches.close()

    def _numpy(self, original):
        def numpy(tensor, *args, **kwargs):
            if tensor.device.type != "cuda":
                return original(tensor, *args, **kwargs)
            self.note(self.reads, "numpy")
            return np.full(list(tensor.shape), _answer(tensor))

        return numpy

    def note(self, counter, what):
        counter[what, _where(sys._getframe(2))] += 1

    def dispatch(self, func, types, args=(), kwargs=None):
        kwargs, name = kwargs or {}, func.overloadpacket.__name__
        if name not in _LOOKED_AT:
            return super().dispatch(func, types, args, kwargs)
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        on_device = any(x.device.type == "cuda" for x in tensors)
        if name == "_local_scalar_dense":
            return self._value(func, types, args, kwargs, on_device)
        if on_device and name in _CHECKED:
            self.note(self.reads, name)
            return True if name == "equal" else None
        if on_device and name in _SIZE_FOLLOWS:
            self.note(self.reads, name)
            x = args[0]
            return x.new_zeros((1, x.dim()), dtype=torch.int64) if name == "nonzero" else x.new_zeros(1)
        if on_device and name in _INDEXED and _by_mask(args):
            self.note(self.reads, "a mask as an index")
            if name == "index":
                (mask,) = (i for i in args[1] if i is not None)
                return args[0].new_zeros((1, *args[0].shape[mask.dim() :]))
        if name in ("_to_copy", "copy_"):
            source, target = _from_to(name, args, kwargs)
            if source != target:
                if target == "cuda":
                    self.note(
                        self.copies, "a copy to cuda" if _goes_on(name, args, kwargs) else "a waiting copy to cuda"
                    )
                else:
                    self.note(self.reads, "a copy to cpu")
        if name in _GRU:
            if len({(x.device, x.dtype) for x in tensors}) > 1:
                raise RuntimeError("a GRU's cell of several devices or types")
            return _GRU[name](*args)
        if name == "_to_copy" and _to_device(args[0], kwargs):
            result = self._empty_like(args[0], kwargs)
        else:
            result = super().dispatch(func, types, args, kwargs)
        if isinstance(result, torch.Tensor):
            _remember(name, args, tensors, result)
        return result

    def _empty_like(self, tensor, kwargs):
        """Copy of a tensor on the device. torch's own way takes milliseconds for each parameter."""
        made = {"dtype": kwargs.get("dtype") or tensor.dtype, "device": torch.device("cuda:0"), "pin_memory": False}
        return super().dispatch(torch.ops.aten.empty.memory_format, (), (list(tensor.shape),), made)

    def _value(self, func, types, args, kwargs, on_device):
        if on_device:
            self.note(self.reads, "a value")
            return _answer(args[0])
        try:
            return super().dispatch(func, types, args, kwargs)
        except DataDependentOutputException:
            return _answer(args[0])


def _gru_cell(inputs, hidden_product, hidden, *biases):
    return hidden.new_empty(hidden.shape), inputs.new_empty(hidden.shape[0], hidden.shape[1] * 5)


def _gru_cell_backward(g, workspace, has_bias):
    rows = workspace.new_empty(g.shape[0], g.shape[1] * 3)
    bias = workspace.new_empty(g.shape[1] * 3) if has_bias else None
    return rows, rows.clone(), torch.empty_like(g), bias, None if bias is None else bias.clone()


# Kernels without shape functions.
_GRU = {"_thnn_fused_gru_cell": _gru_cell, "_thnn_fused_gru_cell_backward": _gru_cell_backward}
# torch handles all others.
_LOOKED_AT = {
    *("_local_scalar_dense", "_to_copy", "copy_", "eq", "ne", "isnan", "full"),
    *(*_CHECKED, *_SIZE_FOLLOWS, *_INDEXED, *_CARRIED, *_GRU),
}


def _where(frame):
    while frame is not None:
        file = frame.f_code.co_filename
        for root in (OURS, FAIRSEQ):
            if file.startswith(root + "/"):
                return f"{Path(root).name}/{file[len(root) + 1 :]}:{frame.f_lineno} {frame.f_code.co_name}"
        frame = frame.f_back
    return "torch"


def _by_mask(args):
    return any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in args[1])


def _to_device(tensor, kwargs):
    """Whether an operation copies to the device with the same memory layout, so that size and dtype suffice."""
    target = kwargs.get("device") or tensor.device
    return target.type == "cuda" and tensor.is_contiguous() and set(kwargs) <= {"dtype", "device", "non_blocking"}


def _from_to(name, args, kwargs):
    if name == "copy_":
        return args[1].device.type, args[0].device.type
    device = kwargs.get("device")
    return args[0].device.type, torch.device(device).type if device is not None else args[0].device.type


def _goes_on(name, args, kwargs):
    """Whether a copy is ``non_blocking``."""
    return kwargs.get("non_blocking", name == "copy_" and len(args) > 2 and args[2])


def _remember(name, args, tensors, result):
    """Record values that are known: all finite, or the value with which a tensor was filled."""
    if name in ("eq", "ne") and (args[0] is args[1] or isinstance(args[1], float) and args[1] == math.inf):
        result.says = (name == "eq") == (args[0] is args[1])
    elif name == "isnan":
        result.says = False
    elif name == "full":
        result.says = args[1]
    elif name in _CARRIED and tensors and hasattr(tensors[0], "says"):
        result.says = tensors[0].says


def _answer(tensor):
    kind = bool if tensor.dtype == torch.bool else float if tensor.is_floating_point() else int
    return kind(getattr(tensor, "says", 1))
