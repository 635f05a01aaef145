"""The file format of an export, and its reader, which needs no torch.

The file is a safetensors file with a description of the tensors, and a SHA-256 of the tensors and the description.

Version 1: the metadata has one key, ``fairseq_reservoir``. Its value is JSON with the keys ``version``, ``seed``, ``generator``,
``body`` and ``sha256``. The body is the description, as deflated JSON in base64; ``read_body`` returns it. The hash covers the body
and all tensors (``digest.of_contents``), so any change of the file is detected.

Version 2, the compact form: the file has two tensors of bytes. ``tensors`` contains all tensors of the export (``compact``). ``body`` is
the deflated description. Deflate uses a preset dictionary, the text of a typical configuration (``usual_configuration.json``). This
dictionary halves the size of ``body``. The metadata has no ``body``.

Version 3 is version 1 with text parts. Version 4 is version 2 with text parts. An additional tensor of bytes, ``text``, contains the text
parts. The description lists the sizes of the parts (``text.parts``).
"""

import base64
import binascii
import functools
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, deserialize, safe_open

from ..errors import InputError
from ..text import parts
from . import compact
from .stored import DTYPES, Stored, hash_of, item_bytes

SUFFIX = ".safetensors"
PLAIN, COMPACT, PLAIN_WITH_TEXT, COMPACT_WITH_TEXT = VERSIONS = range(1, 5)
KEY = "fairseq_reservoir"
BODY, TENSORS = "body", "tensors"  # names of the compact form
TEXT = "text"
_IN_SIGHT = ("version", "seed", "generator")
_LARGEST_BODY = 2**26
# Never change this file: an export can only be read with the preset dictionary with which it was written.
_USUAL = Path(__file__).parent / "usual_configuration.json"


def read(
    path: str | Path, check: Callable[[dict[str, Any], dict[str, Any]], None] | None = None
) -> tuple[dict[str, Any], dict[str, Stored]]:
    """Return the description and the tensors that were given to ``packed_file.write``.

    Args:
        path: path of the file.
        check: function to call before a compact form is decoded. Its arguments are the description, and the shape of each tensor by name.

    Raises:
        InputError: the file is truncated, altered or not an export, or its version is too new. For a compact form: constriction is not
            installed, or the description does not fit the bytes.
    """
    with _opened(path) as file:
        described, body = _description(path, file)
    tensors = _all_tensors(path)
    if described != metadata(body, described.get("body", ""), tensors):
        raise InputError(f"{path}: was altered after it was written (the SHA-256 differs)")
    if _has_text(body):
        tensors.pop(TEXT, None)
    if not is_compact(body):
        return body, tensors
    if check:
        check(body, compact.checked_shapes(path, body, tensors[TENSORS].nbytes))
    return compact.unpack(path, body, tensors[TENSORS])


def read_text(path: str | Path) -> parts.TextParts | None:
    """Return the text parts of an export, or None. This function does not check the hash of the file; ``read`` does.

    Raises:
        InputError: in the cases of ``read_body``, or if the text parts are altered or too large.
    """
    with _opened(path) as file:
        _, body = _description(path, file)
        return parts.unpack(path, body.get(TEXT), _text_of(path, file)) if _has_text(body) else None


def text_of(path: str | Path) -> parts.TextParts | None:
    """Return the text parts of a file; None if it is not an export with text."""
    return read_text(path) if is_export(path) and Path(path).is_file() else None


def read_body(path: str | Path) -> dict[str, Any]:
    """Return the description without checking the hash.

    Raises:
        InputError: in the cases of ``read`` that do not depend on the tensors.
    """
    with _opened(path) as file:
        return _description(path, file)[1]


def stored_bytes(path: str | Path) -> int:
    """Return the number of bytes of the tensors in the file, without the text parts.

    Raises:
        InputError: as ``read_body``.
    """
    with _opened(path) as file:
        body = _description(path, file)[1]
        names = [TENSORS] if is_compact(body) else [name for name in file.keys() if not _has_text(body) or name != TEXT]
        return sum(_bytes_of(file.get_slice(name)) for name in names)


def text_bytes(path: str | Path) -> int:
    """Return the number of bytes of the text parts in the file; 0 without text.

    Raises:
        InputError: as ``read_body``.
    """
    with _opened(path) as file:
        return _text_of(path, file).nbytes if _has_text(_description(path, file)[1]) else 0


def is_export(path: str | Path) -> bool:
    """Return whether a path has the suffix of an export."""
    return str(path).endswith(SUFFIX)


def is_compact(body: dict[str, Any]) -> bool:
    """Return whether a description belongs to an export in the compact form."""
    return body["version"] in (COMPACT, COMPACT_WITH_TEXT)


def _has_text(body: dict[str, Any]) -> bool:
    return body["version"] in (PLAIN_WITH_TEXT, COMPACT_WITH_TEXT)


def _text_of(path: str | Path, file: Any) -> memoryview:
    try:
        return _bytes_in(file, TEXT)
    except (SafetensorError, TypeError) as error:
        raise InputError(f"{path}: its text parts are missing") from error


def metadata(body: dict[str, Any], packed: str, tensors: dict[str, Stored]) -> dict[str, Any]:
    """Return the metadata to store in an export. ``packed`` is the body in base64, or "" for the compact form."""
    described = {name: body.get(name) for name in _IN_SIGHT}
    return described | ({"body": packed} if packed else {}) | {"sha256": hash_of(packed, tensors)}


def deflated(body: dict[str, Any], usual: bytes = b"") -> bytes:
    """Return the deflated JSON of ``body``. Text that also occurs in the preset dictionary ``usual`` adds almost no bytes.

    Deflate finds repetitions only within 32 KiB. The JSON therefore begins with the key ``config``, because its value resembles ``usual``.
    """
    ordered = json.loads(json.dumps(body, sort_keys=True))
    text = json.dumps(dict(sorted(ordered.items(), key=lambda item: item[0] != "config")))
    deflate = zlib.compressobj(level=9, zdict=usual)
    return deflate.compress(text.encode()) + deflate.flush()


@functools.cache
def usual() -> bytes:
    return json.dumps(json.loads(_USUAL.read_text()), sort_keys=True).encode()


def _bytes_in(file: Any, name: str) -> memoryview:
    """Return the contents of the tensor ``name`` as bytes."""
    entries: Any = np.ascontiguousarray(file.get_tensor(name)).reshape(-1).view(np.uint8)
    return memoryview(entries)


def _bytes_of(found: Any) -> int:
    dtype = DTYPES.get(found.get_dtype(), "float64")
    return int(np.prod(found.get_shape(), dtype=np.int64)) * item_bytes(dtype)


def _all_tensors(path: str | Path) -> dict[str, Stored]:
    found = {}
    for name, entry in deserialize(Path(path).read_bytes()):  # type: ignore[no-untyped-call]  # safetensors' own
        if entry["dtype"] not in DTYPES:
            raise InputError(f"{path}: {name[:80]} has the dtype {entry['dtype']}, which exports do not use")
        found[name] = Stored(DTYPES[entry["dtype"]], tuple(entry["shape"]), entry["data"])
    return found


def _opened(path: str | Path) -> Any:
    if not Path(path).is_file():
        raise InputError(f"{path}: no such file")
    try:
        return safe_open(path, framework="np")
    except (SafetensorError, OSError, UnicodeDecodeError) as error:
        if _is_of_torch(path):
            raise InputError(
                f"{path}: is a checkpoint of fairseq; export it first with fairseq-reservoir export {path} OUT{SUFFIX}"
            ) from error
        reason = " ".join(str(error).split())
        raise InputError(f"{path}: truncated, altered or not a safetensors file ({reason})") from error


def _is_of_torch(path: str | Path) -> bool:
    """Return whether a file begins like an archive of ``torch.save``.

    A safetensors file begins with the length of its header. Only a header of about 64 MiB would look like the beginning of an archive.
    """
    with open(path, "rb") as stream:
        return stream.read(4) == b"PK\3\4"


def _description(path: str | Path, file: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the metadata, and the description."""
    try:
        described = json.loads((file.metadata() or {})[KEY])
        version, _ = described["version"], described["sha256"]
        if version in VERSIONS and type(version) is int:
            if is_compact(described):
                packed = bytes(_bytes_in(file, BODY))
            else:
                packed = base64.b64decode(described["body"], validate=True)
            body = json.loads(zlib.decompressobj(zdict=usual()).decompress(packed, _LARGEST_BODY))
            return described, {**body, "version": body["version"]}
    except (
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
        RecursionError,
        SafetensorError,
        binascii.Error,
        zlib.error,
    ) as error:
        raise InputError(f"{path}: is a safetensors file, but not an export of fairseq-reservoir") from error
    raise InputError(
        f"{path}: is an export of version {version}, but this fairseq_reservoir reads versions {VERSIONS[0]} to {VERSIONS[-1]}"
    )
