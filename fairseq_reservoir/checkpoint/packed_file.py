"""The file of an export: safetensors with a description in its metadata and a SHA-256 of both.

The metadata has one key, ``fairseq_reservoir``, whose value is a JSON text: ``{"sha256": ..., "body": {...}}``. The hash is
of the body and of all tensors (``digest.of_contents``), so a change to any part of the file is noticed.
"""

import json
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from ..errors import InputError
from . import digest
from .atomic_file import replacing

SUFFIX = ".safetensors"
VERSION = 1
_KEY = "fairseq_reservoir"


def write(path: str, body: dict, tensors: dict[str, torch.Tensor]) -> None:
    """Writes an export whole or not at all, and reads it back before it takes its name.

    Raises:
        InputError: it cannot be written, or comes back different.
    """
    body = {"version": VERSION, **body}
    tensors = {name: tensor.contiguous() for name, tensor in tensors.items()}
    described = {"sha256": digest.of_contents(body, tensors), "body": body}
    with replacing(path) as temporary:
        try:
            save_file(tensors, temporary, metadata={_KEY: json.dumps(described, sort_keys=True, separators=(",", ":"))})
        except SafetensorError as error:
            raise OSError(error) from error
        read(temporary)


def read(path: str) -> tuple[dict, dict[str, torch.Tensor]]:
    """The description and the tensors of an export.

    Raises:
        InputError: the file is truncated, altered, not an export or of a newer version.
    """
    with _opened(path) as file:
        described = _description(path, file)
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}
    if digest.of_contents(described["body"], tensors) != described["sha256"]:
        raise InputError(f"{path}: altered after it was written (its SHA-256 differs)")
    return described["body"], tensors


def read_body(path: str) -> dict:
    """The description alone, unverified.

    Raises:
        InputError: as ``read``, as far as that can be seen without the tensors.
    """
    with _opened(path) as file:
        return _description(path, file)["body"]


def _opened(path):
    if not Path(path).is_file():
        raise InputError(f"{path}: no such file")
    try:
        return safe_open(path, framework="pt")
    except (SafetensorError, OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: truncated, altered or no safetensors file at all ({' '.join(str(error).split())})") from error


def _description(path, file):
    try:
        described = json.loads((file.metadata() or {})[_KEY])
        version, _ = described["body"]["version"], described["sha256"]
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path}: a safetensors file, but not an export of fairseq-reservoir") from error
    if version != VERSION:
        raise InputError(f"{path}: an export of version {version}; this fairseq_reservoir reads version {VERSION}")
    return described
