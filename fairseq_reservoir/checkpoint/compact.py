"""The compact form of an export's tensors: masks and numbers written near their entropy, all in one row of bytes.

A tensor is one plane of symbols or several: the entries of a mask less the smallest one; the first bytes of all numbers, then the second
bytes, and so on (of floating-point numbers, those with the exponent repeat themselves). A plane has its own table, made from the
counts of its symbols (``entropy_code``), which stand in the description. A plane of one symbol needs no bytes at all; a plane or a
tensor that would not become smaller stays as it is. So do all if there would be more than 1,024 symbols for a byte: what a file
unfolds to is bounded by its own size.

In the description, ``coded`` maps the name of every tensor to its ``shape``, and to its ``dtype``, or to ``bits`` if it is whole numbers
packed to so many (``masks.bits``). Of one that is not as it was, ``planes`` has for each plane its counts and its bytes, or null for
a plane as it is. The bytes are those of the tensors in the order of their names, of each its planes one after the other.
"""

import math
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch

from ..errors import InputError
from ..masks import bits
from ..masks.levels import Levels
from ..random_tensors import digest
from . import entropy_code
from .entropy_code import Symbols

Tensors = dict[str, torch.Tensor]
Body = dict[str, Any]

_DTYPES: dict[str, torch.dtype] = {
    name: getattr(torch, name) for name in "float64 float32 float16 bfloat16 int64 int32 int16 int8 uint8 bool".split()
}
_MOST_PER_BYTE = 1024
# One to two words of the coder's state, and by how much its steps may differ from their mean.
_STATE_BITS, _SLACK_BITS, _SLACK = 48, 32, 2**-10
# Bytes of a plane and of each of its counts in the description, rounded up.
_PLANE_BYTES, _COUNT_BYTES = 8, 4


def pack(body: Body, tensors: Tensors) -> tuple[Body, torch.Tensor]:
    """The description of an export in the compact form, and the bytes of all its tensors, uint8.

    Args:
        body: with the ``masks`` and ``levels`` among the tensors.
        tensors: of the export.

    Raises:
        InputError: the package of the coder is not installed.
    """
    entries, parts, symbols = {}, {}, 0
    whole_numbers = _whole_numbers(body)
    for name, tensor in tensors.items():
        entry, planes = _in_planes(tensor, whole_numbers.get(name))
        written = [_written(plane) for plane in planes]
        payload = b"".join(part for _, part in written)
        described = sum(_cost(plane["counts"]) for plane, _ in written if plane)
        if len(payload) + described < tensor.nbytes:
            entries[name], parts[name] = {**entry, "planes": [plane for plane, _ in written]}, payload
            symbols += sum(map(len, planes))
    if symbols > _MOST_PER_BYTE * sum(map(len, parts.values())):
        entries, parts = {}, {}
    coded = {name: entries.get(name) or _plain(tensor) for name, tensor in tensors.items()}
    row = b"".join(parts[name] if name in parts else digest.raw_bytes(tensors[name]) for name in sorted(tensors))
    return {**body, "coded": coded}, torch.from_numpy(np.frombuffer(bytearray(row), dtype=np.uint8))


def checked_shapes(path: str | Path, body: Body, payload: torch.Tensor) -> dict[str, list[int]]:
    """The shapes of the tensors that ``unpack`` would return; those of masks and levels are their numbers of entries.

    Raises:
        InputError: as ``unpack``, as far as that can be seen before memory is taken.
    """
    _check(path, body["coded"], digest.raw_bytes(payload).nbytes)
    return {name: entry["shape"] for name, entry in body["coded"].items()}


def unpack(path: str | Path, body: Body, payload: torch.Tensor) -> tuple[Body, Tensors]:
    """The description and the tensors that ``pack`` was given.

    Raises:
        InputError: the package of the coder is not installed; the description asks for more than these bytes can hold, or is
            not one of theirs.
    """
    rest, tensors = digest.raw_bytes(payload), {}
    _check(path, body["coded"], rest.nbytes)
    for name, entry in sorted(body["coded"].items()):
        count, planes = math.prod(entry["shape"]), []
        try:
            for plane in entry.get("planes", [None]):
                length = _length(plane, count) if "planes" in entry else _bytes_of(entry)
                planes.append(_read(plane, rest[:length], count))
                rest = rest[length:]
            tensors[name] = _tensor(entry, planes)
        except InputError as error:
            raise InputError(f"{path}: {error}") from error
        except ValueError as error:
            _refuse(path, name, str(error))
    return {key: value for key, value in body.items() if key != "coded"}, tensors


def entropy_bytes(body: Body, tensors: Tensors) -> int:
    """The entropy of an export's tensors, plane by plane, in bytes."""
    whole_numbers = _whole_numbers(body)
    planes = (plane for name in tensors for plane in _in_planes(tensors[name], whole_numbers.get(name))[1])
    return math.ceil(math.fsum(entropy_code.entropy_bits(entropy_code.counts_of(plane)) for plane in planes) / 8)


def _whole_numbers(body: Body) -> dict[str, tuple[list[int], int]]:
    """Shape and bits of the tensors that are whole numbers packed: masks, and the levels of rounded weights."""
    masks = {name: (mask["shape"], mask["bits"]) for name, mask in body["masks"].items()}
    levels = body.get("levels", {})
    return masks | {name: (rounded["shape"], Levels(rounded["kind"]).bits) for name, rounded in levels.items()}


def _plain(tensor: torch.Tensor) -> dict[str, Any]:
    return {"shape": list(tensor.shape), "dtype": str(tensor.dtype).removeprefix("torch.")}


def _bytes_of(entry: dict[str, Any]) -> int:
    """The bytes of a tensor as it is."""
    size: int = math.prod(entry["shape"]) * _DTYPES[entry["dtype"]].itemsize
    return size


def _in_planes(tensor: torch.Tensor, packed: tuple[list[int], int] | None) -> tuple[dict[str, Any], list[Symbols]]:
    """A tensor's entry in the description, and its planes; ``packed``, if it is whole numbers, has their shape and bits."""
    if packed:
        shape, width = packed
        entries = bits.unpack(tensor, shape, width).numpy().reshape(-1).view(np.uint8)
        return {"shape": [len(entries)], "bits": width}, [entries]
    numbers = np.asarray(digest.raw_bytes(tensor), dtype=np.uint8).reshape(-1, tensor.element_size())
    return _plain(tensor), [np.ascontiguousarray(plane) for plane in numbers.T]


def _tensor(entry: dict[str, Any], planes: list[Symbols]) -> torch.Tensor:
    if "bits" in entry:
        return bits.pack(torch.from_numpy(planes[0]), entry["bits"])
    numbers = torch.from_numpy(np.stack(planes, axis=-1))
    return numbers.reshape(-1).view(_DTYPES[entry["dtype"]]).reshape(entry["shape"])


def _written(plane: Symbols) -> tuple[dict[str, Any] | None, bytes]:
    """A plane's entry in the description, and its bytes."""
    counts = entropy_code.counts_of(plane)
    if not counts or entropy_code.entropy_bits(counts) / 8 + _cost(counts) >= len(plane):
        return None, plane.tobytes()
    coded = entropy_code.encode(plane, counts) if counts[-1] < len(plane) else b""
    return {"counts": counts, "bytes": len(coded)}, coded


def _cost(counts: list[int]) -> int:
    return _PLANE_BYTES + _COUNT_BYTES * len(counts)


def _read(entry: dict[str, Any] | None, payload: memoryview, count: int) -> Symbols:
    if entry is None:
        return np.array(payload, dtype=np.uint8)
    if not payload.nbytes:
        return np.full(count, len(entry["counts"]) - 1, dtype=np.uint8)
    return entropy_code.decode(payload, entry["counts"])


def _length(entry: dict[str, Any] | None, count: int) -> int:
    """The bytes of a plane in its tensor."""
    return count if entry is None else int(entry["bytes"])


def _check(path: str | Path, coded: dict[str, Any], stored: int) -> None:
    """Refuses, before any memory is taken, a description that is not one of tensors in so many bytes."""
    described = symbols = 0
    for name, entry in coded.items():
        shape: Any = entry.get("shape") if type(entry) is dict else None
        if not is_shape(shape) or math.prod(shape) > _MOST_PER_BYTE * stored:
            _refuse(path, name, f"shape {str(shape)[:80]} in {stored:,} bytes")
        count, dtype, width = math.prod(shape), _DTYPES.get(str(entry.get("dtype"))), entry.get("bits", 8)
        if type(width) is not int or not 1 <= width <= 8 or ("bits" in entry) == bool(dtype):
            _refuse(path, name, "no numbers of this type")
        if "planes" not in entry and dtype:
            described += _bytes_of(entry)
        else:
            planes = entry.get("planes")
            if type(planes) is not list or len(planes) != (dtype.itemsize if dtype else 1):
                _refuse(path, name, "another number of planes than its type has")
            for plane in planes:
                if plane is not None and not _is_plane(plane, count, 2**width):
                    _refuse(path, name, f"counts or bytes that are not those of {count:,} symbols")
            described += sum(_length(plane, count) for plane in planes)
            symbols += count * len(planes)
        if described > stored or symbols > _MOST_PER_BYTE * stored:
            _refuse(path, name, f"shape {str(shape)[:80]}, too much for {stored:,} bytes in all")
    if described != stored:
        _refuse(path, "tensors", f"{described:,} bytes in all, not {stored:,}")


def _is_plane(entry: Any, count: int, alphabet: int) -> bool:
    """Whether these can be the counts of so many symbols, and the bytes such as their table needs."""
    if type(entry) is not dict:
        return False
    counts, stored = entry.get("counts"), entry.get("bytes")
    if type(counts) is not list or not 1 <= len(counts) <= alphabet or type(stored) is not int:
        return False
    if not all(type(n) is int and n >= 0 for n in counts) or sum(counts) != count or not counts[-1]:
        return False
    if counts[-1] == count:
        return stored == 0
    needed = entropy_code.coded_bits(counts)
    return stored % 4 == 0 and abs(8 * stored - needed - _STATE_BITS) <= _SLACK_BITS + _SLACK * needed


def is_shape(shape: Any) -> bool:
    """Whether this, read from a file, is a tensor's shape."""
    return type(shape) is list and len(shape) <= 8 and all(type(size) is int and 0 <= size for size in shape)


def _refuse(path: str | Path, name: str, what: str) -> NoReturn:
    raise InputError(f"{path}: its description of {name[:80]} is not usable: {what}")
