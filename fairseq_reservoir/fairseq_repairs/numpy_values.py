"""Load numpy's numbers and arrays from a checkpoint with constructors that check their arguments.

numpy's own constructors do not check their arguments. If a file contains a data type with objects, or with fields beyond its size, numpy
uses bytes of the file as a pointer. ``torch.load`` calls the constructors of this module in place of numpy's. These constructors accept
only plain numbers.
"""

import math
from pickle import UnpicklingError

import numpy as np

# Kind (bool, signed, unsigned, floating point) and width in bytes.
CODES = ("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")


class PlainType:
    """Replaces ``numpy.dtype`` while unpickling. Its attribute ``dtype`` is the numpy type."""

    def __new__(cls, code, align=False, copy=False):
        if type(code) is not str or code not in CODES:
            raise UnpicklingError(f"a numpy type {str(code)[:20]!r}; allowed are {', '.join(CODES)}")
        self = super().__new__(cls)
        self.dtype = np.dtype(f"<{code}")
        return self

    def __setstate__(self, state):
        version, order, *further = state
        if version != 3 or order not in ("<", "|") or tuple(further) != (None, None, None, -1, -1, 0):
            raise UnpicklingError("a numpy type that has fields or is not little-endian")


class Array(np.ndarray):
    """Replaces ``numpy.ndarray`` while unpickling: an array that is filled once, with exactly the bytes that its shape needs.

    An ``Array`` is pickled as an ordinary array.
    """

    filled = False

    def __new__(cls, *_):
        raise UnpicklingError("a numpy array, but the file does not contain its bytes")

    def __setstate__(self, state):
        version, shape, kind, fortran, raw = state
        if self.filled or version != 1 or type(fortran) is not bool:
            raise UnpicklingError("a numpy array with an unsupported state")
        _check(kind, raw, shape)
        self.filled = True
        super().__setstate__((1, shape, kind.dtype, fortran, raw))

    def __reduce_ex__(self, protocol):
        return self.view(np.ndarray).__reduce_ex__(protocol)


def empty_array(kind, shape, code) -> Array:
    """Replaces numpy's ``_reconstruct``, which creates every array in a pickle."""
    if kind is not Array or shape != (0,) or code not in (b"b", "b"):
        raise UnpicklingError("a numpy array with unsupported constructor arguments")
    return np.ndarray.__new__(Array, (0,), "i1")


def number(kind, raw):
    """Replaces numpy's ``scalar``, which creates a single number."""
    _check(kind, raw, ())
    return np.frombuffer(raw, kind.dtype)[0]


def no_bytes() -> bytes:
    """Replaces ``bytes``, which a pickle calls to create the content of an empty array."""
    return b""


def _check(kind, raw, shape):
    sizes = type(shape) is tuple and len(shape) <= 32 and all(type(size) is int and size >= 0 for size in shape)
    if type(kind) is not PlainType or type(raw) is not bytes or not sizes:
        raise UnpicklingError("numpy values that are not plain numbers")
    if math.prod(shape) * kind.dtype.itemsize != len(raw):
        raise UnpicklingError(f"a numpy array of shape {str(shape)[:40]} does not fit its {len(raw)} bytes")


# For ``torch.serialization.add_safe_globals``. numpy 2 renamed its module, and checkpoints contain either name.
CONSTRUCTORS = [(PlainType, "numpy.dtype"), (Array, "numpy.ndarray"), (no_bytes, "builtins.bytes")] + [
    (ours, f"numpy.{core}.multiarray.{name}")
    for core in ("core", "_core")
    for ours, name in ((empty_array, "_reconstruct"), (number, "scalar"))
]
