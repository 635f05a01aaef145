"""The file format of an export: safetensors, with a description of the tensors, and a SHA-256 of the tensors and the description.

Version 1: the metadata has one key, ``fairseq_reservoir``. Its value is JSON with the keys ``version``, ``seed``, ``generator``,
``body`` and ``sha256``. The body is the description, as deflated JSON in base64. The hash covers the body and all tensors
(``digest.of_contents``), so any change of the file is detected.

Version 2, the compact form: the file has two tensors of bytes. ``tensors`` contains all tensors of the export (``compact``). ``body`` is
the deflated description, which halves in size because a usual configuration (``usual_configuration.json``) is deflate's preset
dictionary. The metadata has no ``body``.

Versions 3 and 4 are versions 1 and 2 with text parts. They have an additional tensor of bytes, ``text``, whose format is described in
``text.parts``.
"""

import base64
import functools
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from ..errors import InputError
from ..files import replacing
from ..random_tensors import digest
from ..text import parts
from . import compact as compact_form

SUFFIX = ".safetensors"
PLAIN, COMPACT, PLAIN_WITH_TEXT, COMPACT_WITH_TEXT = VERSIONS = range(1, 5)
_KEY = "fairseq_reservoir"
_IN_SIGHT = ("version", "seed", "generator")
_BODY, _TENSORS = "body", "tensors"  # names of the compact form
_TEXT = "text"
_LARGEST_BODY = 2**26
# Never change this file: an export can only be read with the preset dictionary with which it was written.
_USUAL = Path(__file__).parent / "usual_configuration.json"


def write(
    path: str,
    body: dict[str, Any],
    tensors: dict[str, torch.Tensor],
    compact: bool = False,
    text: parts.TextParts | None = None,
) -> None:
    """Write an export atomically. The new file is read and compared before it replaces an existing file.

    Raises:
        InputError: the file cannot be written, or reading it returns other contents.
    """
    body, packed_text = {"version": COMPACT if compact else PLAIN, **body}, b""
    if text:
        described_text, packed_text = parts.pack(text)
        body |= {"version": COMPACT_WITH_TEXT if compact else PLAIN_WITH_TEXT, _TEXT: described_text}
    tensors = {name: tensor.contiguous() for name, tensor in tensors.items()}
    given, packed = digest.of_contents("", tensors), ""
    if compact:
        body, payload = compact_form.pack(body, tensors)
        tensors = {_TENSORS: payload, _BODY: _as_tensor(_deflated(body, _usual()))}
    else:
        packed = base64.b64encode(_deflated(body)).decode()
    if text:
        tensors = {**tensors, _TEXT: _as_tensor(packed_text)}
    described = _described(body, packed, tensors)
    with replacing(path) as temporary:
        try:
            save_file(tensors, temporary, metadata={_KEY: json.dumps(described)})
        except SafetensorError as error:
            raise OSError(error) from error
        found = read(temporary)
        if compact and digest.of_contents("", found[1]) != given or text and read_text(temporary) != text:
            raise OSError("reading the written file returned other contents")


def read(
    path: str | Path, check: Callable[[dict[str, Any], dict[str, Any]], None] | None = None
) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """Return the description and the tensors that were given to ``write``.

    Args:
        path: path of the file.
        check: called with the description and the shape of each tensor before a compact form is decoded.

    Raises:
        InputError: the file is truncated, altered, not an export or of a newer version. For a compact form: constriction is not
            installed, or the description does not fit the bytes.
    """
    with _opened(path) as file:
        described, body = _description(path, file)
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}
    if described != _described(body, described.get("body", ""), tensors):
        raise InputError(f"{path}: altered after it was written (its SHA-256 differs)")
    if _has_text(body):
        tensors.pop(_TEXT, None)
    if not is_compact(body):
        return body, tensors
    if check:
        check(body, compact_form.checked_shapes(path, body, tensors[_TENSORS]))
    return compact_form.unpack(path, body, tensors[_TENSORS])


def read_text(path: str | Path) -> parts.TextParts | None:
    """Return the text parts of an export, or None. Only ``read`` checks the hash of the file.

    Raises:
        InputError: as ``read_body``; the text parts are altered or too large.
    """
    with _opened(path) as file:
        _, body = _description(path, file)
        return parts.unpack(path, body.get(_TEXT), _text_of(path, file)) if _has_text(body) else None


def text_of(path: str | Path) -> parts.TextParts | None:
    """Return the text parts of a file; None if it is not an export with text."""
    return read_text(path) if is_export(path) and Path(path).is_file() else None


def read_body(path: str | Path) -> dict[str, Any]:
    """Return the description without checking the hash.

    Raises:
        InputError: as ``read``, for errors that do not depend on the tensors.
    """
    with _opened(path) as file:
        return _description(path, file)[1]


def stored_bytes(path: str | Path) -> int:
    """Return the bytes of the tensors in the file.

    Raises:
        InputError: as ``read_body``.
    """
    with _opened(path) as file:
        body = _description(path, file)[1]
        parts_of_format = [_BODY] * is_compact(body) + [_TEXT] * _has_text(body)
        return sum(
            digest.raw_bytes(file.get_tensor(name)).nbytes for name in file.keys() if name not in parts_of_format
        )


def text_bytes(path: str | Path) -> int:
    """Return the bytes of the text parts in the file; 0 without text.

    Raises:
        InputError: as ``read_body``.
    """
    with _opened(path) as file:
        return _text_of(path, file).nbytes if _has_text(_description(path, file)[1]) else 0


def is_export(path: str | Path) -> bool:
    """Return whether a path has the suffix of an export."""
    return str(path).endswith(SUFFIX)


def is_compact(body: dict[str, Any]) -> bool:
    """Return whether a description is of the compact form."""
    return body["version"] in (COMPACT, COMPACT_WITH_TEXT)


def _has_text(body: dict[str, Any]) -> bool:
    return body["version"] in (PLAIN_WITH_TEXT, COMPACT_WITH_TEXT)


def _text_of(path: str | Path, file: Any) -> memoryview:
    try:
        return digest.raw_bytes(file.get_tensor(_TEXT))
    except SafetensorError as error:
        raise InputError(f"{path}: its text parts are missing") from error


def _as_tensor(content: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(content), dtype=torch.uint8)


def _described(body: dict[str, Any], packed: str, tensors: dict[str, torch.Tensor]) -> dict[str, Any]:
    """Return the metadata. ``packed`` is the body in base64; empty for the compact form."""
    described = {name: body.get(name) for name in _IN_SIGHT}
    return described | ({"body": packed} if packed else {}) | {"sha256": digest.of_contents(packed, tensors)}


def _deflated(body: dict[str, Any], usual: bytes = b"") -> bytes:
    """Return the deflated JSON of ``body``. Text that is also in the dictionary ``usual`` costs almost nothing.

    Deflate finds repetitions only within 32 KiB. ``config`` is therefore written first, next to ``usual``, which it resembles.
    """
    ordered = json.loads(json.dumps(body, sort_keys=True))
    text = json.dumps(dict(sorted(ordered.items(), key=lambda item: item[0] != "config")))
    deflate = zlib.compressobj(level=9, zdict=usual)
    return deflate.compress(text.encode()) + deflate.flush()


@functools.cache
def _usual() -> bytes:
    return json.dumps(json.loads(_USUAL.read_text()), sort_keys=True).encode()


def _opened(path: str | Path) -> Any:
    if not Path(path).is_file():
        raise InputError(f"{path}: no such file")
    try:
        return safe_open(path, framework="pt")
    except (SafetensorError, OSError, UnicodeDecodeError) as error:
        if _is_of_torch(path):
            raise InputError(
                f"{path}: a checkpoint of fairseq; export it first: fairseq-reservoir export {path} OUT{SUFFIX}"
            ) from error
        reason = " ".join(str(error).split())
        raise InputError(f"{path}: truncated, altered or not a safetensors file ({reason})") from error


def _is_of_torch(path: str | Path) -> bool:
    """Return whether a file begins like an archive of ``torch.save``.

    safetensors begins with the length of its header. It could begin like this only with a header of about 64 MiB.
    """
    with open(path, "rb") as stream:
        return stream.read(4) == b"PK\3\4"


def _description(path: str | Path, file: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the metadata, and the description."""
    try:
        described = json.loads((file.metadata() or {})[_KEY])
        version, _ = described["version"], described["sha256"]
        if version in VERSIONS and type(version) is int:
            if is_compact(described):
                packed = bytes(digest.raw_bytes(file.get_tensor(_BODY)))
            else:
                packed = base64.b64decode(described["body"], validate=True)
            body = json.loads(zlib.decompressobj(zdict=_usual()).decompress(packed, _LARGEST_BODY))
            return described, {**body, "version": body["version"]}
    # binascii.Error is a ValueError.
    except (KeyError, TypeError, ValueError, AttributeError, RecursionError, SafetensorError, zlib.error) as error:
        raise InputError(f"{path}: a safetensors file, but not an export of fairseq-reservoir") from error
    raise InputError(
        f"{path}: an export of version {version}; this fairseq_reservoir reads versions {VERSIONS[0]} to {VERSIONS[-1]}"
    )
