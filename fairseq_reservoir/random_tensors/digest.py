"""SHA-256 hashes of tensors, file contents and dictionaries, as hexadecimal strings."""

import hashlib
import json
from typing import Any

import torch


def raw_bytes(tensor: torch.Tensor) -> memoryview:
    """Return the bytes of a tensor's entries in row-major order."""
    entries: Any = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return memoryview(entries)


def of_tensor(tensor: torch.Tensor) -> str:
    """Hash the bytes of a tensor. The dtype and the shape have no effect."""
    return hashlib.sha256(raw_bytes(tensor)).hexdigest()


def of_contents(text: str, tensors: dict[str, torch.Tensor]) -> str:
    """Hash a text together with all tensors, sorted by name. Names, dtypes and shapes are hashed too."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(raw_bytes(tensor))
    return digest.hexdigest()


def of_symbols(symbols: list[str]) -> str:
    """Hash the symbols of a dictionary, in the dictionary's order and joined by newlines."""
    return hashlib.sha256("\n".join(symbols).encode()).hexdigest()
