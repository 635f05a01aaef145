"""The compact form of an export: a single tensor of bytes that contains all tensors in an entropy code.

The symbols of a tensor are coded in one or several sequences, called planes. A mask has one plane. Its symbols are the mask's entries minus
the smallest entry. Rounded weights have one plane of level indices. All other tensors have one plane with the first byte of every number,
one plane with the second byte of every number, and so on, because the exponent bytes of floating-point numbers repeat often. The
description stores the counts of the symbols of each plane. The coding table of a plane (``entropy_code``) is computed from these counts. A
plane of equal symbols needs no bytes. A plane or a tensor that would not become smaller is stored uncoded. If a coded byte would represent
more than 1,024 symbols on average, all tensors are stored uncoded. A small file therefore cannot contain huge tensors.

In the description, ``coded`` maps the name of each tensor to a dictionary. The key ``shape`` of this dictionary gives the tensor's shape.
Floating-point and integer tensors have the key ``dtype``. Packed whole numbers (``masks.bits``) have the key ``bits`` instead, the number
of bits of each whole number. Coded tensors also have a list ``planes`` with one element for each plane. The element contains the plane's
counts and its number of bytes. For an uncoded plane, the element is null. The bytes of all planes are concatenated, ordered by the name of
the tensor.
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from ..errors import InputError
from ..masks import bits
from ..masks.levels import Levels
from . import entropy_code
from .entropy_code import Symbols
from .stored import DTYPES, Stored, from_torch, item_bytes, to_torch

if TYPE_CHECKING:
    import torch

Tensors = dict[str, "torch.Tensor"]
Body = dict[str, Any]

_MOST_PER_BYTE = 1024  # maximum number of symbols per stored byte
# A code of n expected bits must have n + _STATE_BITS bits, plus or minus _SLACK_BITS + _SLACK * n. The coder's last state needs one or
# two 32-bit words, 48 bits on average.
_STATE_BITS, _SLACK_BITS, _SLACK = 48, 32, 2**-10
# Estimated bytes in the description for each plane, and for each of its counts.
_PLANE_BYTES, _COUNT_BYTES = 8, 4


@dataclass(frozen=True)
class Plane:
    """A coded plane: the count of each symbol, and the size of the code in bytes."""

    counts: list[int]
    bytes: int

    @classmethod
    def from_json(cls, raw: Any, count: int, alphabet: int) -> "Plane | None":
        """Read the description of a plane of ``count`` symbols. Return None for an uncoded plane.

        Raises:
            ValueError: the counts do not add up to ``count``, or the number of bytes is impossible for these counts.
        """
        if raw is None:
            return None
        described: dict[str, Any] = raw if type(raw) is dict else {}
        counts, stored = described.get("counts"), described.get("bytes", -1)
        if (
            _is_count(stored)
            and type(counts) is list
            and 1 <= len(counts) <= alphabet
            and all(map(_is_count, counts))
            and counts[-1]
            and sum(counts) == count
            and (plane := cls(counts, stored))._is_length_possible()
        ):
            return plane
        raise ValueError(f"its counts do not add up to {count:,} symbols, or do not fit its number of bytes")

    def _is_length_possible(self) -> bool:
        """Return whether the code of symbols with these counts can have this number of bytes."""
        if self.counts[-1] == sum(self.counts):
            return self.bytes == 0
        needed = entropy_code.coded_bits(self.counts)
        return self.bytes % 4 == 0 and abs(8 * self.bytes - needed - _STATE_BITS) <= _SLACK_BITS + _SLACK * needed


@dataclass(frozen=True)
class Entry:
    """The description of a tensor. A tensor contains numbers of one dtype, or packed whole numbers of 1 to 8 bits.

    Attributes:
        shape: shape of the tensor.
        dtype: torch's name for the dtype of the numbers; None for packed whole numbers.
        bits: number of bits of each packed whole number; 8 if ``dtype`` is not None.
        planes: planes of the tensor; None in place of an uncoded plane. An uncoded tensor has no planes.
    """

    shape: list[int]
    dtype: str | None
    bits: int
    planes: tuple[Plane | None, ...]

    @classmethod
    def from_json(cls, raw: Any, payload_bytes: int) -> "Entry":
        """Parse the description of one tensor. ``payload_bytes`` is the number of bytes of all tensors in the file.

        Raises:
            ValueError: ``raw`` is not the description of a tensor, or the tensor is too large for the file.
        """
        raw = raw if type(raw) is dict else {}
        shape, width = raw.get("shape"), raw.get("bits", 8)
        dtype = name if (name := str(raw.get("dtype"))) in DTYPES.values() else None
        if not is_shape(shape) or math.prod(shape) > _MOST_PER_BYTE * payload_bytes:
            raise ValueError(
                f"shape {str(shape)[:80]} is invalid, or too large for a file with {payload_bytes:,} bytes of tensors"
            )
        if not _is_count(width) or not 1 <= width <= 8 or ("bits" in raw) == bool(dtype):
            raise ValueError("its dtype or its number of bits is invalid")
        if dtype and "planes" not in raw:
            return cls(shape, dtype, width, ())
        planes, number = raw.get("planes"), item_bytes(dtype) if dtype else 1
        if type(planes) is not list or len(planes) != number:
            raise ValueError(f"a tensor of this dtype must have {number} planes")
        count = math.prod(shape)
        return cls(shape, dtype, width, tuple(Plane.from_json(plane, count, 2**width) for plane in planes))

    @property
    def count(self) -> int:
        return math.prod(self.shape)

    @property
    def stored(self) -> int:
        """Number of bytes of the tensor in the file."""
        if not self.planes and self.dtype:
            return self.count * item_bytes(self.dtype)
        return sum(_length(plane, self.count) for plane in self.planes)


def pack(body: Body, tensors: Tensors) -> tuple[Body, "torch.Tensor"]:
    """Pack an export into the compact form. Return its new description, and one uint8 tensor with the bytes of all tensors.

    Args:
        body: description of the export.
        tensors: tensors of the export.

    Raises:
        InputError: the package constriction is not installed.
    """
    entries, parts, symbols = {}, {}, 0
    whole_numbers = _whole_numbers(body)
    found = {name: from_torch(tensor) for name, tensor in tensors.items()}
    for name, tensor in found.items():
        entry, planes = _in_planes(tensor, whole_numbers.get(name))
        written = [_written(plane) for plane in planes]
        payload = b"".join(part for _, part in written)
        described = sum(_cost(plane["counts"]) for plane, _ in written if plane)
        if len(payload) + described < tensor.nbytes:
            entries[name], parts[name] = {**entry, "planes": [plane for plane, _ in written]}, payload
            symbols += sum(map(len, planes))
    if symbols > _MOST_PER_BYTE * sum(map(len, parts.values())):
        entries, parts = {}, {}
    coded = {name: entries.get(name) or _plain(tensor) for name, tensor in found.items()}
    row = b"".join(parts[name] if name in parts else found[name].data for name in sorted(found))
    return {**body, "coded": coded}, to_torch(Stored("uint8", (len(row),), row))


def checked_shapes(path: str | Path, body: Body, stored: int) -> dict[str, list[int]]:
    """Return the shapes of all tensors without decoding them. The shape of a packed mask or of packed levels has one dimension.

    Args:
        path: path of the file, for messages.
        body: description of the export.
        stored: number of bytes of the coded tensors.

    Raises:
        InputError: the description is not usable.
    """
    entries = _read_entries(path, body["coded"], stored)
    return {name: entry.shape for name, entry in entries.items()}


def unpack(path: str | Path, body: Body, payload: Stored) -> tuple[Body, dict[str, Stored]]:
    """Return the description and the tensors that were passed to ``pack``. Does not need torch.

    Raises:
        InputError: the package constriction is not installed, or the description does not fit the bytes.
    """
    rest, tensors = memoryview(payload.data), {}
    for name, entry in sorted(_read_entries(path, body["coded"], rest.nbytes).items()):
        planes, lengths = [], [_length(plane, entry.count) for plane in entry.planes]
        try:
            for plane, length in zip(entry.planes or [None], lengths or [entry.stored]):
                planes.append(_read(plane, rest[:length], entry.count))
                rest = rest[length:]
            tensors[name] = _tensor(entry, planes)
        except InputError as error:
            raise InputError(f"{path}: {error}") from error
        except ValueError as error:
            refuse_entry(path, name, str(error))
    return {key: value for key, value in body.items() if key != "coded"}, tensors


def entropy_bytes(body: Body, tensors: Tensors) -> int:
    """Return the entropy of an export's tensors in bytes: the sum of the entropies of all planes."""
    whole_numbers = _whole_numbers(body)
    found = {name: from_torch(tensor) for name, tensor in tensors.items()}
    planes = (plane for name in found for plane in _in_planes(found[name], whole_numbers.get(name))[1])
    return math.ceil(math.fsum(entropy_code.entropy_bits(entropy_code.counts_of(plane)) for plane in planes) / 8)


def _whole_numbers(body: Body) -> dict[str, tuple[list[int], int]]:
    """Map the name of each packed tensor (mask or levels of rounded weights) to its shape and its number of bits per entry."""
    masks = {name: (mask["shape"], mask["bits"]) for name, mask in body["masks"].items()}
    levels = body.get("levels", {})
    return masks | {name: (rounded["shape"], Levels(rounded["kind"]).bits) for name, rounded in levels.items()}


def _plain(tensor: Stored) -> dict[str, Any]:
    return {"shape": list(tensor.shape), "dtype": tensor.dtype}


def _in_planes(tensor: Stored, packed: tuple[list[int], int] | None) -> tuple[dict[str, Any], list[Symbols]]:
    """Return the description of a tensor, and its planes.

    ``packed`` is (shape, bits per number) for packed whole numbers, and None for other tensors.
    """
    if packed:
        shape, width = packed
        entries = bits.unpack_array(np.frombuffer(tensor.data, np.uint8), shape, width).reshape(-1).view(np.uint8)
        return {"shape": [len(entries)], "bits": width}, [entries]
    numbers = np.frombuffer(tensor.data, dtype=np.uint8).reshape(-1, item_bytes(tensor.dtype))
    return _plain(tensor), [np.ascontiguousarray(plane) for plane in numbers.T]


def _tensor(entry: Entry, planes: list[Symbols]) -> Stored:
    if entry.dtype is None:
        packed = bits.pack_array(planes[0], entry.bits)
        return Stored("uint8", packed.shape, packed.tobytes())
    return Stored(entry.dtype, tuple(entry.shape), np.stack(planes, axis=-1).tobytes())


def _written(plane: Symbols) -> tuple[dict[str, Any] | None, bytes]:
    """Encode a plane if this saves bytes. Return its description (None if it is not encoded), and its bytes."""
    counts = entropy_code.counts_of(plane)
    if not counts or entropy_code.entropy_bits(counts) / 8 + _cost(counts) >= len(plane):
        return None, plane.tobytes()
    coded = entropy_code.encode(plane, counts) if counts[-1] < len(plane) else b""
    return {"counts": counts, "bytes": len(coded)}, coded


def _cost(counts: list[int]) -> int:
    return _PLANE_BYTES + _COUNT_BYTES * len(counts)


def _read(plane: Plane | None, payload: memoryview, count: int) -> Symbols:
    if plane is None:
        return np.array(payload, dtype=np.uint8)
    if not payload.nbytes:
        return np.full(count, len(plane.counts) - 1, dtype=np.uint8)
    return entropy_code.decode(payload, plane.counts)


def _length(plane: Plane | None, count: int) -> int:
    """Return the number of bytes that a plane of ``count`` symbols needs in the file."""
    return count if plane is None else plane.bytes


def _read_entries(path: str | Path, coded: Body, stored: int) -> dict[str, Entry]:
    """Read the entries of all tensors. Refuse entries that need more than ``stored`` bytes, before memory is allocated."""
    entries, described, symbols = {}, 0, 0
    for name, raw in coded.items():
        try:
            entry = Entry.from_json(raw, stored)
        except ValueError as error:
            refuse_entry(path, name, str(error))
        described += entry.stored
        symbols += entry.count * len(entry.planes)
        if described > stored or symbols > _MOST_PER_BYTE * stored:
            refuse_entry(
                path, name, f"shape {str(entry.shape)[:80]} is too large for a file with {stored:,} bytes of tensors"
            )
        entries[name] = entry
    if described != stored:
        refuse_entry(
            path, "tensors", f"the sizes add up to {described:,} bytes, but the file has {stored:,} bytes of tensors"
        )
    return entries


def is_shape(shape: Any) -> bool:
    """Return whether a value read from a file is a possible shape."""
    return type(shape) is list and len(shape) <= 8 and all(_is_count(size) for size in shape)


def _is_count(value: Any) -> bool:
    """Return whether a value read from a file is a whole number of at least 0. A boolean is not accepted."""
    return type(value) is int and value >= 0


def refuse_entry(path: str | Path, name: str, what: str) -> NoReturn:
    """Refuse an export because the description of ``name`` is invalid."""
    raise InputError(f"{path}: the description of {name[:80]} is not usable, because {what}")
