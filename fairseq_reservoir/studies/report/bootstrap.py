"""Paired bootstrap of test scores. Each run is compared with the baseline's run of the same seed by resampling sentences."""

import os
from dataclasses import dataclass

from .counts import SACREBLEU, bleu
from .translations import Test

SAMPLES = 1000
# sacreBLEU's environment variable for the random seed, and its default: sacreBLEU's own paired bootstrap draws the same resamples.
_SEED_VARIABLE, _SEED = "SACREBLEU_SEED", "12345"


@dataclass(frozen=True)
class Pair:
    """Comparison of one run with the baseline's run of the same seed.

    Attributes:
        arm: name of the run's arm.
        seed: seed of both runs.
        bleu: sacreBLEU of the run on the test set.
        baseline: sacreBLEU of the baseline's run.
        interval: half the width of the 95 % confidence interval of ``bleu``.
        p: p-value of the difference: the probability of a difference at least this large if the two systems are equally good.
        signature: sacreBLEU's signature, with the number of resamples and the random seed.
        source: file with the run's translations, or with their n-gram counts.
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
    """Use sacreBLEU's paired bootstrap (Koehn, 2004) to compare each run with the baseline's run of the same seed.

    Runs without a score are omitted. Runs with other references or another signature than the baseline's run are also omitted;
    ``remark_other_test_sets`` adds remarks on these runs.

    Args:
        arms: all arms.
        baseline: the arm with which all other arms are compared.
        tests: test scores by the run's name.
    """
    pairs: list[Pair] = []
    # With --ignore, an arm may have several runs of a seed. The baseline's first run with a score is used.
    first: dict = {}
    for run in baseline.runs:
        if tests[run.name].bleu is not None:
            first.setdefault(run.seed, run)
    for run in first.values():
        base_test = tests[run.name]
        others = [
            (arm.name, other)
            for arm in arms
            if arm is not baseline
            for other in arm.runs
            if other.seed == run.seed
            and tests[other.name].bleu is not None
            and not _mismatch(tests[other.name], base_test)
        ]
        if others:
            pairs += _resample(base_test, others, tests)
    order = [arm.name for arm in arms]
    return sorted(pairs, key=lambda pair: order.index(pair.arm))


def remark_other_test_sets(arms, baseline, tests: dict[str, Test]) -> None:
    """Add a remark to the test scores of each run that ``paired_bootstrap`` omits because of different references or signatures."""
    for base in baseline.runs:
        base_test = tests[base.name]
        for run in (run for arm in arms for run in arm.runs if run.seed == base.seed):
            test = tests[run.name]
            if None not in (base_test.bleu, test.bleu) and (mismatch := _mismatch(test, base_test)):
                test.remarks.append(f"omitted from the paired bootstrap: {mismatch} than {base.name}")


def _mismatch(test, base_test):
    """Return why two test scores cannot be compared sentence by sentence; "" if they can."""
    if test.counts.references != base_test.counts.references:
        return "scored against different references"
    return "" if test.signature == base_test.signature else f"scored by a different sacreBLEU ({test.signature})"


def _resample(base_test, others, tests):
    """Compare the baseline's test score with the test scores of ``others``, a list of (arm's name, run), on the same resamples."""
    import numpy as np

    seed = os.environ.get(_SEED_VARIABLE, _SEED)
    sentences = len(base_test.counts.by[SACREBLEU].rows)
    random = np.random.default_rng(None if seed.lower() == "none" else int(seed))
    chosen = random.choice(sentences, size=(SAMPLES, sentences), replace=True)
    # times[i, j] is how often resample i contains sentence j. The matrix product of times and the counts has the sums of each resample.
    times = np.stack([np.bincount(sample, minlength=sentences) for sample in chosen])

    def scores(test):
        return np.array([bleu(sums) for sums in times @ np.array(test.counts.by[SACREBLEU].rows)])

    base_scores, pairs = scores(base_test), []
    references, _, rest = base_test.signature.partition("|")
    signature = f"{references}|bs:{SAMPLES}|seed:{seed.lower()}|{rest}"
    for arm, other in others:
        test = tests[other.name]
        resampled = scores(test)
        p, interval = _p_value(resampled - base_scores, test.bleu - base_test.bleu), _half_interval(resampled)
        pairs.append(Pair(arm, other.seed, test.bleu, base_test.bleu, interval, p, signature, test.source))
    return pairs


def _half_interval(scores):
    """Return half the distance between the 2.5 % and the 97.5 % quantile of the scores."""
    ordered, outside = sorted(scores), len(scores) // 40
    return float(ordered[-outside - 1] - ordered[outside]) / 2


def _p_value(differences, observed):
    """Return the p-value as sacreBLEU computes it; 1 if the scores of the two runs are equal on every resample.

    The p-value is the fraction of resamples in which the absolute difference, minus its mean over all resamples, is larger than the
    observed absolute difference.
    """
    sizes = abs(differences)
    if not observed and not sizes.any():
        return 1.0
    return float((sizes - sizes.mean() > abs(observed)).sum() + 1) / (len(sizes) + 1)
