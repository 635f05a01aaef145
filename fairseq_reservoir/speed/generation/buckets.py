"""Shapes of captured steps. Batches are padded to a few sizes, because each shape needs a graph of its own."""

from dataclasses import dataclass

# Up to this size, sizes are powers of two and 1.5 times powers of two. Larger sizes have four steps per power of two.
_COARSE_UP_TO = 32
_LEAST_SOURCE = 16
_LEAST_STEPS = 32


@dataclass(frozen=True)
class Sizes:
    """Shape of a captured step.

    Attributes:
        batch: number of sentences, with padding sentences.
        source: number of source positions, with padding.
        steps: number of decoder steps that fit into the cache.
    """

    batch: int
    source: int
    steps: int


def batch_size(sentences: int) -> int:
    """Round a number of sentences up: 1, 2, 3, 4, 6, 8, 12, ..., 32, then four sizes per power of two: 40, 48, 56, 64, 80, ..."""
    power = 1 << (sentences - 1).bit_length()
    parts = (3, 4) if power <= _COARSE_UP_TO else (5, 6, 7, 8)
    return next(size for part in parts if (size := power * part // parts[-1]) >= sentences)


def source_length(tokens: int) -> int:
    """Round a source length up to a power of two of at least 16."""
    return max(_LEAST_SOURCE, 1 << (tokens - 1).bit_length())


def first_steps(source: int) -> int:
    """Number of steps of the first cache of a batch: 1.5 times the source length, because most translations are not longer.

    It does not depend on the maximum length, because that can differ for each batch, and each number needs a graph of its own.

    Args:
        source: a value of ``source_length``.
    """
    return max(_LEAST_STEPS, 3 * source // 2)


def more_steps(steps: int) -> int:
    """Number of steps of the next larger cache."""
    return 2 * steps


def fewer_sentences(batch: int, left: int) -> int | None:
    """Number of sentences of a smaller shape for the ``left`` unfinished sentences of a shape of ``batch``.

    It is about a quarter of ``batch``, so that few shapes occur. None if more sentences are left.
    """
    quarter = batch_size(max(1, batch // 4))
    return quarter if left <= quarter < batch else None
