"""Tensors as an export stores them. Only the conversions from and to torch's tensors need torch."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ..random_tensors import digest

if TYPE_CHECKING:
    import torch

Array = np.ndarray[Any, Any]

# dtype of safetensors -> name in torch
DTYPES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U8": "uint8",
    "BOOL": "bool",
}
_IN_NUMPY = {name: np.dtype(name) for name in DTYPES.values() if name != "bfloat16"} | {"bfloat16": np.dtype("uint16")}


@dataclass(frozen=True, eq=False)
class Stored:
    """A tensor: name of its dtype in torch, shape, and bytes in row-major order."""

    dtype: str
    shape: tuple[int, ...]
    data: bytes | bytearray | memoryview

    @property
    def nbytes(self) -> int:
        return memoryview(self.data).nbytes

    def array(self) -> Array:
        """Copy the tensor to a writable NumPy array. Floating-point numbers become float32; other numbers keep their dtype."""
        found: Array = np.frombuffer(self.data, dtype=_IN_NUMPY[self.dtype]).reshape(self.shape)
        if self.dtype == "bfloat16":
            return from_bfloat16(found)
        return found.astype(np.float32 if self.dtype.startswith("float") else found.dtype)


def item_bytes(dtype: str) -> int:
    """Return the number of bytes of one number of a dtype, given by torch's name."""
    return _IN_NUMPY[dtype].itemsize


def from_bfloat16(bits: Array) -> Array:
    """Convert bfloat16 numbers, given as uint16, to float32."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def round_to(array: Array, dtype: str) -> Array:
    """Round float32 numbers to the nearest fp16 or bf16 number, ties to even, as torch does. The result is float32.

    Args:
        array: finite float32 numbers.
        dtype: fp32, fp16 or bf16.
    """
    if dtype == "fp16":
        with np.errstate(over="ignore"):
            return array.astype(np.float16).astype(np.float32)
    if dtype == "bf16":
        bits = np.ascontiguousarray(array).view(np.uint32)
        return from_bfloat16(((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16))
    return array


def from_torch(tensor: "torch.Tensor") -> Stored:
    return Stored(str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape), digest.raw_bytes(tensor))


def to_torch(stored: Stored) -> "torch.Tensor":
    """Return a tensor with its own memory."""
    import torch

    dtype: torch.dtype = getattr(torch, stored.dtype)
    if not stored.nbytes:
        return torch.empty(stored.shape, dtype=dtype)
    return torch.frombuffer(bytearray(stored.data), dtype=dtype).reshape(stored.shape)


def hash_of(text: str, tensors: dict[str, Stored]) -> str:
    """Return the hash that ``digest.of_contents`` returns for the same tensors in torch."""
    parts = ((name, f"torch.{t.dtype}", t.shape, memoryview(t.data)) for name, t in tensors.items())
    return digest.of_parts(text, parts)
