"""A linear classifier on the outputs of one layer. The confidence intervals of its accuracy come from a bootstrap over sentences."""

import warnings
from dataclasses import dataclass

import numpy as np

from .properties import TEST, TRAIN, VALID, Property, Tokens

# Values of C, the inverse of the L2 penalty. The one with the best accuracy on the validation part is used.
PENALTIES = (0.001, 0.01, 0.1, 1.0)
_MOST_ITERATIONS, _TOLERANCE = 200, 1e-3
_RESAMPLES = 1000


@dataclass(frozen=True)
class Estimate:
    """A number with its 95 % confidence interval from ``low`` to ``high``."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Result:
    """Accuracies of the probe and of the control probe for one property on one layer, as fractions of the test tokens.

    Attributes:
        accuracy: accuracy of the probe.
        control: accuracy of the control probe, which is the same classifier trained for the control task.
        selectivity: ``accuracy`` minus ``control``.
        penalties: chosen C (inverse of the L2 penalty) of the probe and of the control probe.
    """

    accuracy: Estimate
    control: Estimate
    selectivity: Estimate
    penalties: tuple[float, float]


def probe(outputs: np.ndarray, tokens: Tokens, task: Property, seed: int) -> Result:
    """Train and test two probes on the outputs (tokens, width) of one layer: one for the property ``task``, one for its control task."""
    inputs = standardised(outputs, tokens.part == TRAIN)
    used = (tokens.part == TEST) & (task.labels >= 0)
    right, penalty = _right(inputs, tokens.part, task.labels)
    right_in_control, penalty_of_control = _right(inputs, tokens.part, task.control)
    accuracy, control, selectivity = intervals(tokens.sentence[used], right, right_in_control, seed)
    return Result(accuracy, control, selectivity, (penalty, penalty_of_control))


def standardised(outputs: np.ndarray, train: np.ndarray) -> np.ndarray:
    """Shift and scale each dimension to mean 0 and deviation 1 over the training tokens. A constant dimension becomes 0."""
    mean, deviation = outputs[train].mean(axis=0), outputs[train].std(axis=0)
    return (outputs - mean) / np.where(deviation > 1e-6, deviation, 1.0)


def _right(inputs, part, labels) -> tuple[np.ndarray, float]:
    """Train a probe. Return an array with True for each correctly classified test token, and the chosen C."""
    train, valid, test = ((part == which) & (labels >= 0) for which in (TRAIN, VALID, TEST))
    if len(np.unique(labels[train])) < 2:  # the classifier needs two classes
        return labels[test] == labels[train][0], PENALTIES[0]
    models = {penalty: _fitted(penalty, inputs[train], labels[train]) for penalty in PENALTIES}
    scores = {penalty: (model.predict(inputs[valid]) == labels[valid]).mean() for penalty, model in models.items()}
    best = max(scores, key=scores.__getitem__)
    return models[best].predict(inputs[test]) == labels[test], best


def _fitted(penalty, inputs, labels):
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=penalty, max_iter=_MOST_ITERATIONS, tol=_TOLERANCE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a fit that has not converged after _MOST_ITERATIONS is also used
        return model.fit(inputs, labels)


def intervals(
    sentence: np.ndarray, right: np.ndarray, right_in_control: np.ndarray, seed: int
) -> tuple[Estimate, Estimate, Estimate]:
    """Return accuracy, control accuracy and their difference, with percentile intervals from a bootstrap over sentences.

    Each resample draws as many sentences as there are test sentences, with replacement. The probe and the control probe are scored on the
    same resamples.
    """
    _, places = np.unique(sentence, return_inverse=True)
    sums = np.stack([np.bincount(places, values) for values in (right, right_in_control, np.ones(len(right)))])
    several = sums.shape[1]
    drawn = np.random.default_rng([seed, 3]).multinomial(several, np.full(several, 1 / several), size=_RESAMPLES)
    totals = drawn @ sums.T
    samples = totals[:, :2] / totals[:, 2:]
    values = sums[:2].sum(axis=1) / sums[2].sum()
    return (
        _estimate(values[0], samples[:, 0]),
        _estimate(values[1], samples[:, 1]),
        _estimate(values[0] - values[1], samples[:, 0] - samples[:, 1]),
    )


def _estimate(value, samples) -> Estimate:
    low, high = np.quantile(samples, (0.025, 0.975))
    return Estimate(float(value), float(low), float(high))
