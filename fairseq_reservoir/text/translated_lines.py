"""Translate lines of text with a function that translates batches of pieces. Long lines are split, and their translations are joined."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from .long_lines import split_long_line
from .pieces import Pieces


@dataclass(frozen=True)
class Hypothesis:
    """A translation of a line.

    Attributes:
        text: the detokenized translation.
        score: mean natural logarithm of the tokens' probabilities, as in fairseq (with ``lenpen`` 1).
        parts: number of parts into which the line was split.
        cut_short: whether the translation of a part was cut at the maximum length.
    """

    text: str
    score: float = 0.0
    parts: int = 1
    cut_short: bool = False


@dataclass(frozen=True)
class PartHypothesis:
    """A translation of a part of a line. ``tokens`` is the translation's number of pieces, including the end of sentence."""

    text: str
    tokens: int
    score: float
    cut_short: bool


@dataclass(frozen=True)
class _Part:
    """A line to translate, or a part of a long line."""

    line: int
    symbols: Sequence[str]


def translate_lines(
    lines: Sequence[str],
    pieces: Pieces,
    translate: Callable[[list[Sequence[str]]], list[list[PartHypothesis]]],
    most: int,
    batch_size: int,
    after_batch: Callable[[int], None] | None = None,
) -> list[list[Hypothesis]]:
    """Return the hypotheses of each line. A blank line has one empty hypothesis.

    Args:
        lines: text.
        pieces: splits lines into symbols.
        translate: returns the hypotheses of each sentence of a batch, best first. The first sentence of a batch is the longest.
        most: maximum number of symbols of a part.
        batch_size: sentences per batch. Sentences are sorted by length before they are batched.
        after_batch: called after each batch with the number of lines that this batch completed.
    """
    parts = [
        _Part(number, symbols)
        for number, line in enumerate(lines)
        if (cut := pieces.cut(line))
        for symbols in split_long_line(cut, most, pieces.begins_a_word)
    ]
    found: list[list[PartHypothesis]] = [[] for _ in parts]
    left = Counter(part.line for part in parts)
    for batch in _batches(parts, batch_size):
        for i, hypotheses in zip(batch, translate([parts[i].symbols for i in batch])):
            found[i] = hypotheses
        left.subtract(parts[i].line for i in batch)
        if after_batch:
            after_batch(sum(not left[line] for line in {parts[i].line for i in batch}))
    of_line: dict[int, list[list[PartHypothesis]]] = {}
    for part, hypotheses in zip(parts, found):
        of_line.setdefault(part.line, []).append(hypotheses)
    return [_joined(of_line[i]) if i in of_line else [Hypothesis("")] for i in range(len(lines))]


def _batches(parts: list[_Part], batch_size: int) -> Iterator[list[int]]:
    """Group parts of similar lengths, and yield the indices of each batch. fairseq's LSTM needs the longest part first."""
    order = sorted(range(len(parts)), key=lambda i: len(parts[i].symbols))
    for start in range(0, len(order), batch_size):
        yield order[start : start + batch_size][::-1]


def _joined(parts: list[list[PartHypothesis]]) -> list[Hypothesis]:
    """Join the hypotheses of a line's parts. The score is the mean over all tokens."""
    joined = []
    for chosen in zip(*parts):
        tokens = sum(part.tokens for part in chosen)
        score = sum(part.score * part.tokens for part in chosen) / tokens
        text = " ".join(part.text for part in chosen if part.text)
        joined.append(Hypothesis(text, score, len(parts), any(part.cut_short for part in chosen)))
    return joined
