"""Write an export, and read its tensors as torch's tensors. ``export_file`` describes the format."""

import base64
import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file

from ..files import replacing
from ..random_tensors import digest
from ..text import parts
from . import compact as compact_form, export_file
from .export_file import COMPACT, COMPACT_WITH_TEXT, KEY, PLAIN, PLAIN_WITH_TEXT, deflated, metadata, read_text
from .stored import from_torch, to_torch


def write(
    path: str,
    body: dict[str, Any],
    tensors: dict[str, torch.Tensor],
    compact: bool = False,
    text: parts.TextParts | None = None,
) -> None:
    """Write an export atomically. The new file is read back and checked before it replaces an existing file.

    Raises:
        InputError: the file cannot be written, or reading it returns other contents.
    """
    body, packed_text = {"version": COMPACT if compact else PLAIN, **body}, b""
    if text:
        described_text, packed_text = parts.pack(text)
        body |= {"version": COMPACT_WITH_TEXT if compact else PLAIN_WITH_TEXT, export_file.TEXT: described_text}
    tensors = {name: tensor.contiguous() for name, tensor in tensors.items()}
    given, packed = digest.of_contents("", tensors), ""
    if compact:
        body, payload = compact_form.pack(body, tensors)
        tensors = {export_file.TENSORS: payload, export_file.BODY: _as_tensor(deflated(body, export_file.usual()))}
    else:
        packed = base64.b64encode(deflated(body)).decode()
    if text:
        tensors = {**tensors, export_file.TEXT: _as_tensor(packed_text)}
    described = metadata(body, packed, {name: from_torch(tensor) for name, tensor in tensors.items()})
    with replacing(path) as temporary:
        try:
            save_file(tensors, temporary, metadata={KEY: json.dumps(described)})
        except SafetensorError as error:
            raise OSError(error) from error
        found = read(temporary)
        if compact and digest.of_contents("", found[1]) != given or text and read_text(temporary) != text:
            raise OSError("reading the written file returned other contents")


def read(path: str | Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Version of ``export_file.read`` that returns torch tensors."""
    body, tensors = export_file.read(path)
    return body, {name: to_torch(tensor) for name, tensor in tensors.items()}


def _as_tensor(content: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)
