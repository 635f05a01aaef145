"""N-gram counts of translations. BLEU, chrF and the paired bootstrap are computed from the counts alone, without the sentences."""

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ...errors import InputError
from ...files import read_regular
from .run_files import MOST

FILE = "counts.jsonl"
SACREBLEU, CHRF, TOKENISED = METRICS = ("sacreBLEU", "chrF", "tokenised BLEU")
_CHRF_ORDER, _CHRF_BETA = 6, 2
# For each metric: the length of a row of counts, and the columns with the matching n-grams and with the translation's n-grams.
_BLEU = (10, slice(2, 6), slice(6, 10))
_ROWS = {SACREBLEU: _BLEU, CHRF: (3 * _CHRF_ORDER, slice(2, 18, 3), slice(0, 18, 3)), TOKENISED: _BLEU}
_SMOOTHING = {SACREBLEU: "exp", TOKENISED: "none"}


@dataclass(frozen=True)
class Counted:
    """The n-gram counts of one metric, as in sacreBLEU: one row per sentence, or a single row with the sums over all sentences.

    A row of BLEU has 10 numbers. The first two are the lengths of the translation and of the reference in tokens. Then come the numbers of
    matching n-grams for n = 1, 2, 3, 4 tokens, and the numbers of n-grams in the translation for the same n. A row of chrF has three
    numbers for each n from 1 to 6 characters. They are the numbers of n-grams in the translation, n-grams in the reference, and matching
    n-grams.

    Attributes:
        signature: sacreBLEU's signature, which lists the settings of the metric.
        rows: the counts.
    """

    signature: str
    rows: list[list[int]]


@dataclass(frozen=True)
class Counts:
    """Counts of the translations of one test set.

    Attributes:
        by: counts by metric. Without fairseq-generate's H- and T-lines, tokenised BLEU is missing. Without detokenised references,
            sacreBLEU and chrF are missing.
        references: SHA-256 of the reference lines.
        unknown: number of references that contain <<unk>>.
        referred: source of the references, such as "--references".
    """

    by: dict[str, Counted] = field(default_factory=dict)
    references: str = ""
    unknown: int = 0
    referred: str = ""

    def score(self, metric: str) -> tuple[float | None, str]:
        """Return the score and the signature of a metric; (None, "") if its counts are missing."""
        if metric not in self.by:
            return None, ""
        counted = self.by[metric]
        return score(metric, counted), counted.signature


def count(metric: str, hypotheses: Sequence[str], references: Sequence[str]) -> Counted:
    """Count the n-grams of each sentence for a metric of ``METRICS``."""
    from sacrebleu.metrics import BLEU, CHRF as ChrF

    if metric == CHRF:
        return Counted(_signature(ChrF()), [_chrf_row(*pair) for pair in zip(hypotheses, references)])
    options = dict(tokenize="none", smooth_method="none", force=True) if metric == TOKENISED else {}
    # Without effective_order sacreBLEU warns about scores of single sentences. The counts do not depend on this option.
    counter = BLEU(effective_order=True, **options)
    scores = [counter.sentence_score(ours, [theirs]) for ours, theirs in zip(hypotheses, references)]
    rows = [[one.sys_len, one.ref_len, *one.counts, *one.totals] for one in scores]
    return Counted(_signature(BLEU(**options)), rows)


def score(metric: str, counted: Counted) -> float:
    """Return the score of a corpus, 0 to 100, from the counts of its sentences."""
    sums = _sums(counted.rows)
    return _chrf(sums) if metric == CHRF else bleu(sums, _SMOOTHING[metric])


def bleu(sums: Sequence[int], smoothing: str = _SMOOTHING[SACREBLEU]) -> float:
    """Return BLEU, 0 to 100, from a row with the sums of the counts over sentences."""
    from sacrebleu.metrics import BLEU

    length, reference_length, *counts = map(int, sums)
    return BLEU.compute_bleu(counts[:4], counts[4:], length, reference_length, smooth_method=smoothing).score


def _signature(metric):
    """Return the signature of a metric. It is complete only after sacreBLEU has computed a score."""
    metric.corpus_score(["a"], [["a"]])
    return str(metric.get_signature())


def _chrf_row(hypothesis, reference):
    """Count the character n-grams, without spaces, in the same way as sacreBLEU's CHRF, which does not return its counts."""
    row = []
    for n in range(1, _CHRF_ORDER + 1):
        ours, theirs = (_character_ngrams("".join(text.split()), n) for text in (hypothesis, reference))
        # sacreBLEU ignores the translation's n-grams if the reference has no n-grams of this length.
        row += [ours.total() if theirs else 0, theirs.total(), (ours & theirs).total()]
    return row


def _character_ngrams(text, n):
    return Counter(text[i : i + n] for i in range(len(text) - n + 1))


def _chrf(sums):
    """Return chrF (Popović, 2015): the F-score of mean precision and mean recall over all n for which both texts have n-grams."""
    orders = [row for row in zip(sums[0::3], sums[1::3], sums[2::3]) if row[0] and row[1]]
    precision = sum(matching / ours for ours, _, matching in orders) / max(1, len(orders))
    recall = sum(matching / theirs for _, theirs, matching in orders) / max(1, len(orders))
    if not precision + recall:
        return 0.0
    factor = _CHRF_BETA**2
    return 100 * ((1 + factor) * precision * recall / (factor * precision + recall))


def compare(hypotheses: Sequence[str], references: Sequence[str], referred: str) -> Counts:
    """Count the n-grams for sacreBLEU and chrF. ``referred`` names the source of the references."""
    by = {metric: count(metric, hypotheses, references) for metric in (SACREBLEU, CHRF)}
    unknown = sum("<<unk>>" in line for line in references)
    return Counts(by, digest(references), unknown, referred)


def digest(references: Sequence[str]) -> str:
    return hashlib.sha256("\n".join(references).encode()).hexdigest()


def as_text(counts: Counts) -> str:
    """Return the text of a file ``counts.jsonl``: a line with the sums over all sentences, then one line per sentence with its row of BLEU.

    Only BLEU needs one row per sentence, because the paired bootstrap resamples sentences and computes only BLEU. The first line also has
    the SHA-256 of the references. If the test set is very small, a reader can use the hash to check a guess of the references.
    """
    whole = {name: [one.signature, _sums(one.rows)] for name, one in counts.by.items()}
    head = {"references": counts.references, "unknown": counts.unknown, "referred": counts.referred, **whole}
    rows = counts.by[SACREBLEU].rows if SACREBLEU in counts.by else []
    return "".join(f"{json.dumps(line)}\n" for line in (head, *rows))


def read(file: Path) -> Counts:
    """Read the counts that ``as_text`` wrote.

    Raises:
        InputError: the file cannot be read, its first line lacks a key, or its rows do not add up to the sums in the first line.
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
            raise ValueError("a value in the first line has the wrong type, or a metric is missing")
        return Counts(by, texts[0], unknown, texts[1])
    except KeyError as error:
        raise InputError(f"{file}: is not a file of translation counts (its first line lacks {error})") from error
    except (OSError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{file}: is not a file of translation counts ({error})") from error


def _check(metric, rows, sums):
    length, matched, whole = _ROWS[metric]
    for row in (*rows, sums):
        if len(row) != length or not all(type(number) is int and 0 <= number < 2**40 for number in row):
            raise ValueError(f"each row of {metric} must have {length} whole numbers")
        if any(right > all_ for right, all_ in zip(row[matched], row[whole])):
            raise ValueError(
                f"in a row of {metric}, the number of matching n-grams is larger than the number of n-grams in the translation"
            )
    if _sums(rows) != sums:
        raise ValueError(f"the rows of {metric} do not add up to the sums in the first line; rows may be missing")


def _sums(rows):
    return [sum(column) for column in zip(*rows)]
