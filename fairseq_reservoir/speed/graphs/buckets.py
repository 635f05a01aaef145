"""Buckets: the few shapes to which training batches are padded, so that few CUDA graphs cover a data set.

A shape is a list of integers: the number of sentences, and one padded length per side. Translation has two lengths (source, target), a
language model has one. A batch fits into a bucket if no number of the batch's shape is greater than the corresponding number of the bucket.
After padding, the batch has sentences * (source length + target length) tokens, where all three numbers are those of the bucket.

Rounding each number up to a fixed multiple wastes many tokens, because batches differ in the number of sentences and in both lengths. On
Multi30k, rounding both lengths to multiples of 8 and the number of sentences to multiples of 16 gives 1.21 times as many tokens as no
padding. With equally many shapes, ``choose`` gives 1.06 times as many as no padding. ``choose`` has three steps:

1. Equal shapes are counted. If there are more than ``CELLS`` distinct shapes, nearby shapes are combined on a logarithmic grid.
2. At first, each shape is a group. The two groups whose merging adds the fewest tokens are merged, until ``limit`` groups are left.
3. Each group becomes a bucket. Each shape moves to the cheapest bucket that holds it, and each bucket shrinks to the largest numbers of its
   shapes. This step is repeated while it saves tokens.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from fairseq.data import (
    LanguagePairDataset,
    LRUCacheDataset,
    MonolingualDataset,
    NestedDictionaryDataset,
    PadDataset,
    SortDataset,
)

# Tokens after / before padding, by number of buckets, with lengths in multiples of 2. Multi30k is the real corpus. For IWSLT14 and
# WMT14, lengths of real sentences are resampled to the size of the corpus. In the last row, the lengths of a pair are less correlated.
#
#                                  16    24    32    36    40    48
#   Multi30k, 4,096 tokens       1.142 1.101 1.079 1.070 1.064 1.055
#   Multi30k, 32,768 tokens      1.046 1.021 1.021 1.021 1.021 1.021
#   IWSLT14, 4,096 tokens        1.247 1.168 1.137 1.129 1.123 1.112
#   IWSLT14, 8,192 tokens        1.271 1.197 1.158 1.145 1.133 1.116
#   WMT14, 4,096 tokens          1.268 1.178 1.138 1.128 1.122 1.110
#   WMT14, 8,192 tokens          1.308 1.197 1.156 1.139 1.128 1.116
#   WMT14, loosely paired        1.351 1.236 1.189 1.174 1.163 1.148
#
# 40 stays well below 1.15 in the first six rows. A graph is captured once, in about 0.1 s, but padding costs time in every update.
LIMIT = 40
# With 40 buckets, padding needs 1.00 to 1.13 times the tokens for multiples of 1, 1.02 to 1.13 for 2, 1.08 to 1.16 for 4, and 1.17 to
# 1.21 for 8, because most sentences are short. Tensor cores need multiples of 8 only in attention's products. All other products have
# sentences * length rows, and fairseq's number of sentences is a multiple of 8.
MULTIPLE = 2
# The time to merge grows with the square of this number: about 0.4 s for 1,200.
CELLS = 1200


def tokens(shapes: np.ndarray) -> np.ndarray:
    """Compute the number of tokens of each shape, sentences * sum of lengths. ``shapes``: (..., d) with the number of sentences first."""
    return shapes[..., 0] * shapes[..., 1:].sum(-1)


def choose(shapes: np.ndarray, limit: int = LIMIT, multiple: int = MULTIPLE) -> np.ndarray:
    """Choose at most ``limit`` buckets so that each batch fits into one with few padding tokens. The result depends only on the arguments.

    Args:
        shapes: (batches, d) integers, the shape of each batch of an epoch, with repetitions.
        limit: number of buckets, at least 1.
        multiple: the lengths of buckets are multiples of this number.

    Returns:
        (k, d) integers with k <= limit, the cheapest bucket first. Each row of ``shapes`` fits into at least one bucket.

    Raises:
        ValueError: ``limit`` is less than 1.
    """
    if limit < 1:
        raise ValueError(f"limit {limit}: must be at least 1")
    shapes = np.array(shapes, dtype=np.int64)
    shapes[:, 1:] = -(-shapes[:, 1:] // multiple) * multiple
    shapes, counts = _distinct(shapes)
    if len(shapes) > limit:
        cells, sizes = _combine(shapes, counts, max(CELLS, limit))
        shapes = _shrink(_merge(cells, sizes, limit), shapes, counts)
    return shapes[np.argsort(tokens(shapes), kind="stable")]


def smallest(buckets: np.ndarray, shape: Sequence[int]) -> int | None:
    """Find the cheapest bucket that holds ``shape``, and return its index; None if no bucket holds it."""
    fitting = np.flatnonzero((buckets >= np.asarray(shape)).all(axis=1))
    return int(fitting[tokens(buckets[fitting]).argmin()]) if len(fitting) else None


def padding(shapes: np.ndarray, buckets: np.ndarray) -> float:
    """Compute (tokens after padding) / (tokens before padding) over all batches. A batch that fits into no bucket counts without padding.

    Args:
        shapes: (batches, d) integers.
        buckets: (k, d) integers.
    """
    shapes, counts = _distinct(np.asarray(shapes, dtype=np.int64))
    before = tokens(shapes)
    after = _costs(buckets, shapes).min(axis=0, initial=np.inf)
    after = np.where(np.isinf(after), before, after)
    return float((counts @ after) / (counts @ before)) if len(shapes) else 1.0


def _groups(rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Group equal rows. Return the index of the first row of each group, and the group of each row.

    This function encodes each row as one number. ``np.unique`` with ``axis=0`` compares bytes, and takes ten times as long.
    """
    keys = np.zeros(len(rows), dtype=np.int64)
    for column in rows.T:
        values, column = np.unique(column, return_inverse=True)
        keys = np.unique(keys * max(len(values), 1) + column.reshape(-1), return_inverse=True)[1].reshape(-1)
    return np.unique(keys, return_index=True)[1], keys


def _distinct(shapes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct rows in ascending order, and the number of occurrences of each."""
    first, group = _groups(shapes)
    return shapes[first], np.bincount(group, minlength=len(first))


def _combine(shapes: np.ndarray, counts: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Combine shapes in the same cell of a logarithmic grid. The grid becomes coarser until at most ``most`` cells are occupied.

    Returns:
        The elementwise maximum of the shapes in each cell, and the number of batches in each cell.
    """
    logarithms, step = np.log(np.maximum(shapes, 1)), 0.02
    first, cell = _groups(shapes)
    while len(first) > most:
        first, cell = _groups(np.floor(logarithms / np.log1p(step)).astype(np.int64))
        step *= 1.2
    cells = np.zeros((len(first), shapes.shape[1]), dtype=np.int64)
    np.maximum.at(cells, cell, shapes)
    return cells, np.bincount(cell, weights=counts)


def _merge(shapes: np.ndarray, counts: np.ndarray, limit: int) -> np.ndarray:
    """Repeatedly merge the two groups whose merging adds the fewest tokens, until ``limit`` groups are left.

    Return the elementwise maximum of the shapes in each group.

    The best partner of each group is stored. After a merge, only groups that have lost their best partner search again.
    """
    shapes, counts = shapes.copy(), counts.astype(np.float64)
    count = len(shapes)
    own = counts * tokens(shapes)
    alive = np.ones(count, dtype=bool)
    added, partner = np.full(count, np.inf), np.zeros(count, dtype=np.int64)

    def added_by(group: int) -> np.ndarray:
        both = np.maximum(shapes, shapes[group])
        result = (counts + counts[group]) * tokens(both) - own - own[group]
        result[~alive] = result[group] = np.inf
        return result

    def find_partner(group: int) -> np.ndarray:
        costs = added_by(group)
        partner[group] = costs.argmin()
        added[group] = costs[partner[group]]
        return costs

    for group in range(count):
        find_partner(group)
    for _ in range(count - limit):
        kept = int(added.argmin())
        dropped = int(partner[kept])
        shapes[kept] = np.maximum(shapes[kept], shapes[dropped])
        counts[kept] += counts[dropped]
        own[kept] = counts[kept] * tokens(shapes[kept])
        alive[dropped], added[dropped] = False, np.inf
        for group in np.flatnonzero(alive & ((partner == kept) | (partner == dropped))).tolist():
            find_partner(group)
        costs = find_partner(kept)
        closer = costs < added
        added[closer], partner[closer] = costs[closer], kept
    return shapes[alive]


def _costs(buckets: np.ndarray, shapes: np.ndarray) -> np.ndarray:
    """Return the number of tokens of each shape after padding to each bucket, (buckets, shapes); infinite if the shape does not fit."""
    fits = (buckets[:, None] >= shapes).all(axis=2)
    return np.where(fits, tokens(buckets)[:, None].astype(np.float64), np.inf)


def _shrink(buckets: np.ndarray, shapes: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Move shapes to their cheapest buckets and shrink buckets to their shapes, until a round saves no tokens.

    Buckets without shapes are dropped.
    """
    total = np.inf
    while True:
        costs = _costs(buckets, shapes)
        bucket = costs.argmin(axis=0)
        now = counts @ costs[bucket, np.arange(len(shapes))]
        smaller = np.zeros_like(buckets)
        np.maximum.at(smaller, bucket, shapes)
        buckets = smaller[np.unique(bucket)]
        if now >= total:
            return buckets
        total = now


class Side(NamedTuple):
    """Lengths of one side (source or target) of a data set, and how the collater pads them."""

    sizes: Any  # length of each sample
    extra: int = 0  # number of tokens that the data set may add to a sample
    least: int = 0  # smallest padded length
    multiple: int = 1  # padded lengths are multiples of this number

    def padded(self, order: np.ndarray, starts: np.ndarray) -> np.ndarray:
        """Return the padded length of each batch. Batch i has the samples ``order[starts[i]:starts[i + 1]]``."""
        lengths = np.maximum.reduceat(np.asarray(self.sizes)[order], starts).astype(np.int64) + self.extra
        return -(-np.maximum(lengths, self.least) // self.multiple) * self.multiple


def shapes_of(dataset: Any, batches: Iterable[Sequence[int]]) -> np.ndarray | None:
    """Compute the shapes of a data set's batches from the lengths of its samples. No sample is read.

    The result has the lengths that batches have after collation. With ``--truncate-source``, and in language models with ``--self-target``
    or ``--past-target``, a length in the result can be too large by 1, because the collated length depends on the text.

    Args:
        dataset: a data set of the tasks translation, language_modeling or masked_lm, or of a task with the same classes.
        batches: indices of the samples of each batch (``EpochBatchIterator.frozen_batches``). Empty batches are left out.

    Returns:
        (batches, 3) integers: sentences, source length, target length. For data with one side, (batches, 2) integers: sentences, length.
        None if the class of the data set is not supported.
    """
    layout = _layout(dataset)
    if layout is None:
        return None
    sentences, sides = layout
    arrays = [np.asarray(batch, dtype=np.int64) for batch in batches if len(batch)]
    if not arrays:
        return np.zeros((0, 1 + len(sides)), dtype=np.int64)
    counts = np.array([len(batch) for batch in arrays])
    order, starts = np.concatenate(arrays), np.cumsum(counts) - counts
    return np.column_stack([np.maximum(counts, sentences), *(side.padded(order, starts) for side in sides)])


def _layout(dataset: Any) -> tuple[int, list[Side]] | None:
    """Return the minimum number of sentences per batch, and the sides of a data set; None if its Python class is not known."""
    while isinstance(dataset, (SortDataset, LRUCacheDataset)):
        dataset = dataset.dataset
    for known, layout in _LAYOUTS.items():
        methods = ("__getitem__", "collater")
        if isinstance(dataset, known) and all(getattr(type(dataset), m) is getattr(known, m) for m in methods):
            return layout(dataset)
    return None


def _of_pairs(dataset: LanguagePairDataset) -> tuple[int, list[Side]]:
    """Return the layout of translation. Without targets, there is one side."""
    multiple, bos = dataset.pad_to_multiple, int(dataset.append_bos)
    sides = [Side(dataset.src_sizes, bos, multiple=multiple)]
    if dataset.tgt_sizes is not None:
        sides.append(Side(dataset.tgt_sizes, max(bos, int(dataset.append_eos_to_target)), multiple=multiple))
    return 0, sides


def _of_text(dataset: MonolingualDataset) -> tuple[int, list[Side]]:
    """Return the layout of language modeling. With the targets "past" or "self", fairseq adds a missing end of sentence to a block."""
    eos = dataset.add_eos_for_other_targets and {"self", "past"} & set(dataset.targets or ())
    extra = int(dataset.add_bos_token) + int(bool(eos))
    return dataset.pad_to_bsz or 0, [Side(dataset.sizes, extra, least=dataset.fixed_pad_length or 0)]


def _of_dictionary(dataset: NestedDictionaryDataset) -> tuple[int, list[Side]] | None:
    """Return the layout of masked_lm and sentence_prediction; None if another padded tensor of a batch is not as long as the input."""
    padded = {name: entry for name, entry in dataset.defn.items() if isinstance(entry, PadDataset)}
    source = padded.get("net_input.src_tokens")
    if source is None or any(type(entry).collater is not PadDataset.collater for entry in padded.values()):
        return None
    sizes = getattr(source, "sizes", None)
    lengths = {entry.pad_length for entry in padded.values()}
    if sizes is None or len(lengths) > 1 or not all(np.array_equal(sizes, entry.sizes) for entry in padded.values()):
        return None
    return 0, [Side(sizes, least=source.pad_length or 0)]


_LAYOUTS: dict[type, Callable[[Any], tuple[int, list[Side]] | None]] = {
    LanguagePairDataset: _of_pairs,
    MonolingualDataset: _of_text,
    NestedDictionaryDataset: _of_dictionary,
}
