"""SHA-256 of tensors and of what a file says."""

import hashlib
import json
from typing import Any

import torch


def raw_bytes(tensor: torch.Tensor) -> memoryview:
    """The entries in order, as they lie in memory."""
    entries: Any = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return memoryview(entries)


def of_tensor(tensor: torch.Tensor) -> str:
    """SHA-256 of the tensor's bytes, hexadecimal."""
    return hashlib.sha256(raw_bytes(tensor)).hexdigest()


def of_contents(text: str, tensors: dict[str, torch.Tensor]) -> str:
    """SHA-256 of a text and of tensors with their names, types and shapes, in the order of the names."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(raw_bytes(tensor))
    return digest.hexdigest()


def of_words(symbols: list[str]) -> str:
    """SHA-256 of a dictionary's entries in their order, one per line."""
    return hashlib.sha256("\n".join(symbols).encode()).hexdigest()
