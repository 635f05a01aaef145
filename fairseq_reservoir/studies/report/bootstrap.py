"""Paired bootstrap of test scores: every run against the baseline's run of the same seed, resampled sentence by sentence."""

import os
from dataclasses import dataclass

from .counts import SACREBLEU, bleu
from .translations import Test

SAMPLES = 1000
# sacreBLEU's variable and its default, so that its own paired bootstrap resamples the same sentences.
_SEED_VARIABLE, _SEED = "SACREBLEU_SEED", "12345"


@dataclass(frozen=True)
class Pair:
    """A run of an arm against the baseline's run of the same seed.

    Attributes:
        arm: name of the arm.
        seed: seed of both runs.
        bleu: test score of the run.
        baseline: test score of the baseline's run.
        interval: half the width of the 95 % confidence interval of ``bleu``.
        p: probability of a difference at least this large by chance alone.
        signature: sacreBLEU's signature, with the number of resamples and the random seed.
        source: file of the translations.
    """

    arm: str
    seed: int | None
    bleu: float
    baseline: float
    interval: float
    p: float
    signature: str
    source: str


def paired_bootstrap(arms, baseline, tests: dict[str, Test]) -> list[Pair]:
    """Compare every run with the baseline's run of the same seed by sacreBLEU's paired bootstrap (Koehn, 2004).

    Runs without a score are left out. Runs with other references or another signature are left out too;
    ``remark_other_test_sets`` names them.
    """
    pairs = []
    for run in baseline.runs:
        ours = tests[run.name]
        others = [
            (arm.name, other)
            for arm in arms
            if arm is not baseline
            for other in arm.runs
            if other.seed == run.seed and tests[other.name].bleu is not None and not _mismatch(tests[other.name], ours)
        ]
        if ours.bleu is not None and others:
            pairs += _resample(ours, others, tests)
    order = [arm.name for arm in arms]
    return sorted(pairs, key=lambda pair: order.index(pair.arm))


def remark_other_test_sets(arms, baseline, tests: dict[str, Test]) -> None:
    """Add a remark to each test that ``paired_bootstrap`` leaves out because of its references or its signature."""
    for base in baseline.runs:
        ours = tests[base.name]
        for run in (run for arm in arms for run in arm.runs if run.seed == base.seed):
            test = tests[run.name]
            if None not in (ours.bleu, test.bleu) and (other := _mismatch(test, ours)):
                test.remarks.append(f"{other} than {base.name}, so not in the bootstrap")


def _mismatch(test, ours):
    """Return why two tests cannot be compared sentence by sentence; "" if they can."""
    if test.counts.references != ours.counts.references:
        return "other references"
    return "" if test.signature == ours.signature else f"another sacreBLEU ({test.signature})"


def _resample(ours, others, tests):
    import numpy as np

    seed = os.environ.get(_SEED_VARIABLE, _SEED)
    sentences = len(ours.counts.by[SACREBLEU].rows)
    random = np.random.default_rng(None if seed.lower() == "none" else int(seed))
    chosen = random.choice(sentences, size=(SAMPLES, sentences), replace=True)
    # How often each sentence is in each resample: its product with the rows sums the rows of every resample.
    times = np.stack([np.bincount(sample, minlength=sentences) for sample in chosen])

    def scores(test):
        return np.array([bleu(sums) for sums in times @ np.array(test.counts.by[SACREBLEU].rows)])

    theirs, pairs = scores(ours), []
    references, _, rest = ours.signature.partition("|")
    signature = f"{references}|bs:{SAMPLES}|seed:{seed.lower()}|{rest}"
    for arm, other in others:
        test = tests[other.name]
        resampled = scores(test)
        p = _p_value(resampled - theirs, test.bleu - ours.bleu)
        pairs.append(Pair(arm, other.seed, test.bleu, ours.bleu, _half_interval(resampled), p, signature, test.source))
    return pairs


def _half_interval(scores):
    """Half the distance between the 2.5 % and the 97.5 % quantile."""
    ordered, outside = sorted(scores), len(scores) // 40
    return float(ordered[-outside - 1] - ordered[outside]) / 2


def _p_value(differences, observed):
    """Return the share of resamples with a larger centred difference than the observed one; 1 if the runs never differ."""
    sizes = abs(differences)
    if not observed and not sizes.any():
        return 1.0
    return float((sizes - sizes.mean() > abs(observed)).sum() + 1) / (len(sizes) + 1)
