"""The compact form of an export's tensors: masks and numbers written near their entropy, and back.

A tensor is one plane of symbols or several: the entries of a mask less the smallest one; the first bytes of all numbers, then the second
bytes, and so on (of floating-point numbers, those with the exponent repeat themselves). A plane has its own table, made from the
counts of its symbols (``entropy_code``), which stand in the description. A plane of one symbol needs no bytes at all, and one that
would not become smaller stays as it is. So does a tensor that would not, or that would have more than 1,024 entries for each of its
bytes: what a file unfolds to is bounded by its own size.

In the description, ``coded`` maps the tensor's name to its ``shape``, to its ``dtype``, or to ``bits`` if it is whole numbers packed to
so many (``masks.bits``), and to ``planes``: for each its counts and its bytes, or null for a plane as it is. The tensor's bytes are
those of the planes, one after the other.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch

from ..errors import InputError
from ..masks import bits
from . import digest, entropy_code
from .entropy_code import Symbols

Tensors = dict[str, torch.Tensor]
Body = dict[str, Any]

_DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in ("float32", "float16", "bfloat16")}
_MOST_PER_BYTE = 1024
# One to two words of the coder's state, and by how much its steps may differ from their mean.
_STATE_BITS, _SLACK_BITS, _SLACK = 48, 32, 2**-10
# Bytes of a count in the description, rounded up.
_COUNT_BYTES = 4


def pack(body: Body, tensors: Tensors) -> tuple[Body, Tensors]:
    """The description and the tensors of an export in the compact form.

    Raises:
        InputError: the package of the coder is not installed.
    """
    coded, packed = {}, dict(tensors)
    for name, entry, planes in _in_planes(body, tensors):
        written = [_written(plane) for plane in planes]
        payload = b"".join(part for _, part in written)
        described = sum(_COUNT_BYTES * len(plane["counts"]) for plane, _ in written if plane)
        smaller = len(payload) + described < tensors[name].nbytes
        if entry and smaller and len(planes[0]) <= _MOST_PER_BYTE * len(payload):
            coded[name] = {**entry, "planes": [plane for plane, _ in written]}
            packed[name] = torch.frombuffer(bytearray(payload), dtype=torch.uint8)
    return {**body, "coded": coded}, packed


def unpack(path: str | Path, body: Body, tensors: Tensors) -> tuple[Body, Tensors]:
    """The description and the tensors that ``pack`` was given.

    Raises:
        InputError: the package of the coder is not installed; the description asks for more than the tensors' bytes can hold,
            or is not one of theirs.
    """
    unpacked = dict(tensors)
    for name, entry in body["coded"].items():
        _check(path, name, entry, tensors)
    for name, entry in body["coded"].items():
        count, payload, planes = math.prod(entry["shape"]), digest.raw_bytes(tensors[name]), []
        try:
            for plane in entry["planes"]:
                length = _length(plane, count)
                planes.append(_read(plane, payload[:length], count))
                payload = payload[length:]
            unpacked[name] = _tensor(entry, planes)
        except InputError as error:
            raise InputError(f"{path}: {error}") from error
        except ValueError as error:
            _refuse(path, name, str(error))
    return {key: value for key, value in body.items() if key != "coded"}, unpacked


def entropy_bytes(body: Body, tensors: Tensors) -> int:
    """The entropy of an export's tensors, plane by plane, in bytes."""
    planes = (plane for _, _, planes in _in_planes(body, tensors) for plane in planes)
    return math.ceil(math.fsum(entropy_code.entropy_bits(entropy_code.counts_of(plane)) for plane in planes) / 8)


def _in_planes(body: Body, tensors: Tensors) -> Iterator[tuple[str, dict[str, Any] | None, list[Symbols]]]:
    """Every tensor's name, what ``_tensor`` needs to make it of its planes (None if it cannot be coded), and these."""
    for name, tensor in tensors.items():
        if name in body["masks"]:
            shape, width = body["masks"][name]["shape"], body["masks"][name]["bits"]
            entries = bits.unpack(tensor, shape, width).numpy().reshape(-1).view(np.uint8)
            yield name, {"shape": [len(entries)], "bits": width}, [entries]
        else:
            numbers = np.asarray(digest.raw_bytes(tensor), dtype=np.uint8).reshape(-1, tensor.element_size())
            dtype = str(tensor.dtype).removeprefix("torch.")
            entry = {"shape": list(tensor.shape), "dtype": dtype} if dtype in _DTYPES else None
            yield name, entry, [np.ascontiguousarray(plane) for plane in numbers.T]


def _tensor(entry: dict[str, Any], planes: list[Symbols]) -> torch.Tensor:
    if "bits" in entry:
        return bits.pack(torch.from_numpy(planes[0]), entry["bits"])
    numbers = torch.from_numpy(np.stack(planes, axis=1))
    return numbers.reshape(-1).view(_DTYPES[entry["dtype"]]).reshape(entry["shape"])


def _written(plane: Symbols) -> tuple[dict[str, Any] | None, bytes]:
    """A plane's entry in the description, and its bytes."""
    counts = entropy_code.counts_of(plane)
    if not counts or entropy_code.entropy_bits(counts) / 8 + _COUNT_BYTES * len(counts) >= len(plane):
        return None, plane.tobytes()
    coded = entropy_code.encode(plane, counts) if counts[-1] < len(plane) else b""
    return {"counts": counts, "bytes": len(coded)}, coded


def _read(entry: dict[str, Any] | None, payload: memoryview, count: int) -> Symbols:
    if entry is None:
        return np.array(payload, dtype=np.uint8)
    if not payload.nbytes:
        return np.full(count, len(entry["counts"]) - 1, dtype=np.uint8)
    return entropy_code.decode(payload, entry["counts"])


def _length(entry: dict[str, Any] | None, count: int) -> int:
    """The bytes of a plane in its tensor."""
    return count if entry is None else int(entry["bytes"])


def _check(path: str | Path, name: str, entry: Any, tensors: Tensors) -> None:
    """Refuses, before any memory is taken, a description that is not one of a tensor of this many bytes."""
    if name not in tensors or tensors[name].dtype != torch.uint8 or type(entry) is not dict:
        _refuse(path, name, "no tensor in compact form")
    shape: Any = entry.get("shape")
    planes, stored = entry.get("planes"), tensors[name].numel()
    if not is_shape(shape) or math.prod(shape) > _MOST_PER_BYTE * stored:
        _refuse(path, name, f"shape {str(shape)[:80]} in {stored:,} bytes")
    count, dtype, width = math.prod(shape), _DTYPES.get(str(entry.get("dtype"))), entry.get("bits", 8)
    if type(width) is not int or not 1 <= width <= 8 or ("bits" in entry) == bool(dtype):
        _refuse(path, name, "no numbers of this type")
    if type(planes) is not list or len(planes) != (dtype.itemsize if dtype else 1):
        _refuse(path, name, "another number of planes than its type has")
    for plane in planes:
        if plane is not None and not _is_plane(plane, count, 2**width):
            _refuse(path, name, f"counts or bytes that are not those of {count:,} symbols")
    if sum(_length(plane, count) for plane in planes) != stored:
        _refuse(path, name, f"shape {str(shape)[:80]} in {stored:,} bytes")


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
