"""Store a padded batch in one tensor, so that it is sent between processes, pinned and copied to the device as a whole."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

# The key under which an unpacked batch has its ``PackedBatch``.
PACKED = "packed"
_Path = tuple[str, ...]


@dataclass
class PackedBatch:
    """A batch with all its tensors stored as slices of one tensor.

    fairseq's data loader sends tensors to the training process one by one. Sending took a quarter of the host's time per update.

    Attributes:
        flat: (n,), int64, the entries of all tensors, one tensor after the other.
        slices: for each tensor, its path in the batch and its shape.
        rest: for each entry of the batch that is not a tensor, its path and its value.
    """

    flat: Tensor
    slices: list[tuple[_Path, torch.Size]]
    rest: list[tuple[_Path, Any]]

    def __len__(self) -> int:
        """Return the number of entries. fairseq treats a batch of length 0 as the dummy batch of a rank without data."""
        return len(self.slices) + len(self.rest)

    def __getitem__(self, key: str) -> Any:
        """Return an entry of the batch, for programs that read batches before the training does."""
        return self.batch()[key]

    def pin_memory(self) -> "PackedBatch":
        """Copy the batch to pinned memory. torch's data loader calls this."""
        return PackedBatch(self.flat.pin_memory(), self.slices, self.rest)

    def to(self, device: torch.device) -> "PackedBatch":
        """Copy the batch to a device. From pinned memory, the host does not wait for the copy."""
        return PackedBatch(self.flat.to(device, non_blocking=True), self.slices, self.rest)

    def clone(self) -> "PackedBatch":
        return PackedBatch(self.flat.clone(), self.slices, self.rest)

    def batch(self) -> dict[str, Any]:
        """Return the batch as fairseq's collaters build it, with views of ``flat``, and with this object under the key ``PACKED``."""
        batch: dict[str, Any] = {PACKED: self}
        for path, value in self.rest:
            _set(batch, path, value)
        first = 0
        for path, shape in self.slices:
            last = first + shape.numel()
            _set(batch, path, self.flat[first:last].view(shape))
            first = last
        return batch


def pack(batch: Mapping[str, Any]) -> PackedBatch:
    """Copy the tensors of a batch, all int64, into one tensor."""
    entries = list(_entries(batch, ()))
    tensors = [(path, value) for path, value in entries if isinstance(value, Tensor)]
    flat = torch.cat([tensor.reshape(-1) for _, tensor in tensors])
    rest = [(path, value) for path, value in entries if not isinstance(value, Tensor)]
    return PackedBatch(flat, [(path, tensor.shape) for path, tensor in tensors], rest)


def _entries(batch, path):
    for key, value in batch.items():
        if isinstance(value, Mapping):
            yield from _entries(value, (*path, key))
        else:
            yield (*path, key), value


def _set(batch, path, value):
    *groups, key = path
    for group in groups:
        batch = batch.setdefault(group, {})
    batch[key] = value


@dataclass
class PackingCollater:
    """Collates and packs batches in a worker of the data loader.

    Attributes:
        collate: the function that fairseq's data loader would call.
        packed: a function that pads and packs a batch, or returns the batch unchanged (``padding.Padder``).
    """

    collate: Callable[[Any], Any]
    packed: Callable[[Any], Any]

    def __call__(self, samples: Any) -> Any:
        return self.packed(self.collate(samples))
