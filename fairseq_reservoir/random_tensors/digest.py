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
    """SHA-256 of the tensor's bytes as a hexadecimal string."""
    return hashlib.sha256(raw_bytes(tensor)).hexdigest()


def of_contents(text: str, tensors: dict[str, torch.Tensor]) -> str:
    """One SHA-256 of a text and of all tensors in the order of their names. It also covers names, dtypes and shapes."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(json.dumps([name, str(tensor.dtype), list(tensor.shape)]).encode())
        digest.update(raw_bytes(tensor))
    return digest.hexdigest()


def of_symbols(symbols: list[str]) -> str:
    """SHA-256 of the text that has one symbol of a dictionary per line, in the dictionary's order."""
    return hashlib.sha256("\n".join(symbols).encode()).hexdigest()
