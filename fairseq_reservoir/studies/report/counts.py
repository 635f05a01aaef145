"""Counts of n-grams in translations: BLEU, chrF and the bootstrap are made of them, with no sentence of the test set."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...errors import InputError
from ...files import read_regular
from .run_files import MOST

FILE = "counts.jsonl"
SACREBLEU, CHRF, TOKENISED = METRICS = ("sacreBLEU", "chrF", "tokenised BLEU")
# How long a row is, and where in it are the n-grams that are right and those of the translation.
_BLEU = (10, slice(2, 6), slice(6, 10))
_ROWS = {SACREBLEU: _BLEU, CHRF: (18, slice(2, 18, 3), slice(0, 18, 3)), TOKENISED: _BLEU}


@dataclass(frozen=True)
class Counted:
    """sacreBLEU's counts, a row for each sentence or one for all, and the signature of the score that they make.

    A row of BLEU: the words of translation and reference; the n-grams of n = 1, 2, 3, 4 words that are in both; those of the
    translation. A row of chrF, for n = 1 to 6 characters: the n-grams of the translation, of the reference, those in both.
    """

    signature: str
    rows: list[list[int]]


@dataclass(frozen=True)
class Counts:
    """Of the translations of one test set, by metric: tokenised BLEU where there are words, the others where there are references.

    ``references`` is the SHA-256 of their lines, ``unknown`` how many of them hold <<unk>>, ``referred`` where they are from.
    """

    by: dict[str, Counted] = field(default_factory=dict)
    references: str = ""
    unknown: int = 0
    referred: str = ""

    def of(self, metric: str) -> tuple[float | None, str]:
        """The score and its signature; None and "" where nothing is counted."""
        if metric not in self.by:
            return None, ""
        counted = self.by[metric]
        return score(metric, counted), counted.signature


def _metric(name):
    from sacrebleu.metrics import BLEU, CHRF as ChrF

    if name == TOKENISED:  # as fairseq; without sacreBLEU's warning of tokenised words
        return BLEU(tokenize="none", smooth_method="none", force=True)
    return BLEU() if name == SACREBLEU else ChrF()


def count(metric: str, hypotheses: Sequence[str], references: Sequence[str]) -> Counted:
    """What a metric of ``METRICS`` counts, sentence by sentence."""
    counter = _metric(metric)
    rows = counter._extract_corpus_statistics(hypotheses, [references])
    return Counted(str(counter.get_signature()), [[int(number) for number in row] for row in rows])


def score(metric: str, counted: Counted) -> float:
    """The score of a corpus, 0 to 100, of the counts of its sentences."""
    return _metric(metric)._aggregate_and_compute(counted.rows).score


def compare(hypotheses: Sequence[str], references: Sequence[str], referred: str) -> Counts:
    """sacreBLEU and chrF of translations."""
    by = {metric: count(metric, hypotheses, references) for metric in (SACREBLEU, CHRF)}
    unknown = sum("<<unk>>" in line for line in references)
    return Counts(by, digest(references), unknown, referred)


def digest(references: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(references).encode()).hexdigest()


def as_text(counts: Counts) -> str:
    """The lines of a file ``counts.jsonl``: what is counted over all sentences, then sacreBLEU's row of each.

    The paired bootstrap resamples sentences, and BLEU alone. The SHA-256 of the references lets whoever has them know that they are
    the same, and whoever has not guess at the sentences of a test set of very few words.
    """
    whole = {name: [one.signature, _sums(one.rows)] for name, one in counts.by.items()}
    head = {"references": counts.references, "unknown": counts.unknown, "referred": counts.referred, **whole}
    rows = counts.by[SACREBLEU].rows if SACREBLEU in counts.by else []
    return "".join(f"{json.dumps(line)}\n" for line in (head, *rows))


def read(file: Path) -> Counts:
    """Inverse of ``as_text``.

    Raises:
        InputError: the file cannot be read, lacks something, or its rows do not add up to what its first line says.
    """
    try:
        head, *rows = map(json.loads, read_regular(file, MOST).decode().splitlines())
        texts, unknown = [head["references"], head["referred"]], head["unknown"]
        by = {}
        for name in (metric for metric in METRICS if metric in head):
            signature, sums = head[name]
            texts.append(signature)
            by[name] = Counted(signature, rows if name == SACREBLEU else [sums])
            _check(name, by[name].rows, sums)
        if (
            not all(type(text) is str for text in texts)
            or type(unknown) is not int
            or (SACREBLEU in by) != (CHRF in by)
        ):
            raise ValueError("its first line is not one of counts")
        return Counts(by, texts[0], unknown, texts[1])
    except KeyError as error:
        raise InputError(f"{file}: holds no counts of translations (its first line lacks {error})") from error
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{file}: holds no counts of translations ({error})") from error


def _check(metric, rows, sums):
    length, matched, whole = _ROWS[metric]
    for row in (*rows, sums):
        if len(row) != length or not all(type(number) is int and 0 <= number < 2**40 for number in row):
            raise ValueError(f"rows of {length} whole numbers are needed for {metric}")
        if any(right > all_ for right, all_ in zip(row[matched], row[whole])):
            raise ValueError(f"a row of {metric} has more right than there are")
    if _sums(rows) != sums:
        raise ValueError(f"the rows of {metric} do not add up, some are lost")


def _sums(rows):
    return [sum(column) for column in zip(*rows)]
