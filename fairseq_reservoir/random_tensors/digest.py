"""SHA-256 hashes of tensors, file contents and dictionaries, as hexadecimal strings."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

Part = tuple[str, str, Sequence[int], bytes | memoryview]


def raw_bytes(tensor: "torch.Tensor") -> memoryview:
    """Return the bytes of a tensor's entries in row-major order."""
    import torch

    entries: Any = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return memoryview(entries)


def of_tensor(tensor: "torch.Tensor") -> str:
    """Hash the bytes of a tensor. The dtype and the shape have no effect."""
    return hashlib.sha256(raw_bytes(tensor)).hexdigest()


def of_contents(text: str, tensors: dict[str, "torch.Tensor"]) -> str:
    """Hash a text together with named tensors; see ``of_parts``."""
    return of_parts(text, ((name, str(t.dtype), t.shape, raw_bytes(t)) for name, t in tensors.items()))


def of_parts(text: str, parts: Iterable[Part]) -> str:
    """Hash a text together with tensors, sorted by name. Names, dtypes and shapes are hashed too.

    Args:
        text: the text.
        parts: name, dtype as torch prints it (``torch.float32``), shape and bytes of each tensor, in any order.
    """
    digest = hashlib.sha256(text.encode())
    for name, dtype, shape, content in sorted(parts, key=lambda part: part[0]):
        digest.update(json.dumps([name, dtype, list(shape)]).encode())
        digest.update(content)
    return digest.hexdigest()


def of_symbols(symbols: list[str]) -> str:
    """Hash the symbols of a dictionary, in the dictionary's order and joined by newlines."""
    return hashlib.sha256("\n".join(symbols).encode()).hexdigest()
