"""Refuse ranks of one run that read different data.

fairseq distributes the batches of one data set over the ranks. A rank with a different data set would train on different sentences, and may
have a different number of batches. A rank with a different dictionary would train on different tokens.
"""

import hashlib
from typing import Any

import numpy as np

from ..errors import InputError
from ..random_tensors import digest
from .rank_flags import gather

_DICTIONARIES = ("source_dictionary", "target_dictionary", "label_dictionary")


def compare_data(task: Any, group: Any) -> None:
    """Compare the hashes of a task's dictionaries and loaded data sets on all ranks. Every rank must call this.

    The dictionaries themselves are exchanged only if hashes differ.

    Raises:
        InputError: the message names the first rank that differs from rank 0, and the difference.
    """
    hashes = gather(hashes_of(task), group)
    name = first_difference(hashes)
    if name is not None:
        refuse_other_data(name, gather(contents_of(task, name), group), [found.get(name) for found in hashes])


def first_difference(ranks: list[dict[str, str]]) -> str | None:
    """Return the first name under which ranks have different values, or None."""
    names = dict.fromkeys(name for found in ranks for name in found)
    return next((name for name in names if len({found.get(name) for found in ranks}) > 1), None)


def hashes_of(task: Any) -> dict[str, str]:
    """Return the SHA-256 of each dictionary's entries, and of the sentence lengths of each data set, by name."""
    symbols = {name: _symbols(task, name) for name in _DICTIONARIES}
    hashes = {name: digest.of_symbols(entries) for name, entries in symbols.items() if entries}
    sizes = {name: _sizes(dataset) for name, dataset in task.datasets.items()}
    return hashes | {name: _hash(found) for name, found in sizes.items() if found is not None}


def _symbols(task, name):
    try:
        return getattr(getattr(task, name, None), "symbols", [])
    except NotImplementedError:  # raised by fairseq for a task without dictionaries
        return []


def _sizes(dataset):
    """Return a data set's sentence lengths, or its number of sentences if it has no lengths. Return None if this number is unknown, too."""
    sizes = getattr(dataset, "sizes", None)
    try:
        return np.asarray([len(dataset)] if sizes is None else sizes, dtype=np.int64)
    except (TypeError, ValueError, NotImplementedError):
        return None


def _hash(sizes):
    return hashlib.sha256(np.ascontiguousarray(sizes)).hexdigest()


def contents_of(task: Any, name: str) -> list[str] | str:
    """Return the entries of a dictionary, or a description of a data set's size, such as ``"9 sentences of 80 tokens"``."""
    if name in _DICTIONARIES:
        return _symbols(task, name)
    dataset = task.datasets.get(name)
    if dataset is None:
        return "no sentences"
    lengths = getattr(dataset, "sizes", None)
    return f"{len(dataset)} sentences" + ("" if lengths is None else f" of {_sizes(dataset).sum()} tokens")


def refuse_other_data(name: str, contents: list, hashes: list) -> None:
    """Refuse the first rank with a dictionary or data set that differs from rank 0's.

    Args:
        name: the dictionary or data set that differs.
        contents: output of ``contents_of`` on every rank.
        hashes: the hash of the dictionary or data set on every rank.

    Raises:
        InputError: always. The message names the rank and the first difference between its data and that of rank 0.
    """
    rank = next(rank for rank, found in enumerate(hashes) if found != hashes[0])
    ours, first = contents[rank], contents[0]
    if name in _DICTIONARIES:
        which = name.replace("_", " ")
        place = next((i for i, (one, other) in enumerate(zip(ours, first)) if one != other), None)
        if place is None:
            what = f"the {which} has {len(ours)} entries, but {len(first)} on rank 0"
        else:
            what = f"entry {place} of the {which} is {ours[place]}, but {first[place]} on rank 0"
        raise InputError(f"rank {rank}: {what}; all ranks need the same dictionaries in DATA")
    what = (
        f"{name} has {ours}, but {first} on rank 0"
        if ours != first
        else f"the sentence lengths of {name} differ from those on rank 0"
    )
    raise InputError(f"rank {rank}: {what}; all ranks need the same DATA")
