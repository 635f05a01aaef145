"""Shapes of captured steps. Batches are padded to a few shapes, because each shape needs its own graph."""

from dataclasses import dataclass

# Up to this size, sizes are powers of two and 1.5 times powers of two. Larger sizes have four steps per power of two.
_COARSE_UP_TO = 32
_LEAST_SOURCE = 16
_LEAST_STEPS = 32


@dataclass(frozen=True)
class Sizes:
    """Shape of a captured step.

    Attributes:
        batch: number of sentences, including padding sentences.
        source: source length, including padding.
        steps: number of decoder steps for which the cache has room.
    """

    batch: int
    source: int
    steps: int


def batch_size(sentences: int) -> int:
    """Round a number of sentences up to 1, 2, 3, 4, 6, 8, 12, 16, 24 or 32, and above 32 to 40, 48, 56, 64, 80, 96, 112, 128, ..."""
    power = 1 << (sentences - 1).bit_length()
    parts = (3, 4) if power <= _COARSE_UP_TO else (5, 6, 7, 8)
    return next(size for part in parts if (size := power * part // parts[-1]) >= sentences)


def source_length(tokens: int) -> int:
    """Round a source length up to a power of two of at least 16."""
    return max(_LEAST_SOURCE, 1 << (tokens - 1).bit_length())


def first_steps(source: int) -> int:
    """Return the number of steps that a batch's first cache holds: 1.5 times the source length, because few translations are longer.

    The number does not depend on the maximum length of translations. The maximum can differ between batches, and each number of steps
    needs its own graph.

    Args:
        source: the source length, rounded by ``source_length``.
    """
    return max(_LEAST_STEPS, 3 * source // 2)


def fewer_sentences(batch: int, left: int) -> int | None:
    """Return the size of a smaller shape for the unfinished sentences of a batch: about a quarter of the size ``batch``.

    Return None if more than a quarter of the sentences are unfinished. There are no shapes of half the size, because each further shape
    would need its own graph.

    Args:
        batch: the size of the present shape.
        left: number of unfinished sentences.
    """
    quarter = batch_size(max(1, batch // 4))
    return quarter if left <= quarter < batch else None
