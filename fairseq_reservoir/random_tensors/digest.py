"""SHA-256 hashes of tensors, file contents and dictionaries."""

import hashlib
import json
from typing import Any

import torch


def raw_bytes(tensor: torch.Tensor) -> memoryview:
    """Bytes of the tensor's entries in row-major order."""
    entries: Any = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return memoryview(entries)


def of_tensor(tensor: torch.Tensor) -> str:
    """SHA-256 of the tensor's bytes, hexadecimal."""
    return hashlib.sha256(raw_bytes(tensor)).hexdigest()


def of_contents(text: str, tensors: dict[str, torch.Tensor]) -> str:
    """SHA-256 of a text and of tensors with their names, dtypes and shapes, sorted by name."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(raw_bytes(tensor))
    return digest.hexdigest()


def of_symbols(symbols: list[str]) -> str:
    """SHA-256 of a dictionary's symbols in order, one per line."""
    return hashlib.sha256("\n".join(symbols).encode()).hexdigest()
