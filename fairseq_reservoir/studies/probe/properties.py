"""Token properties for a probe to predict. Each property has labels, and random labels for a control task."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

MOST_TOKENS = 50  # maximum number of classes of the property `token`: one class per frequent token. Less frequent tokens have no class
# Numbers, such as positions, are divided into classes at these quantiles of the training tokens.
_QUARTILES = (0.25, 0.5, 0.75)
TRAIN, VALID, TEST = 0, 1, 2


@dataclass(frozen=True)
class Tokens:
    """The probed tokens. Each attribute is an array with one element per token.

    Attributes:
        sentence: index of the token's sentence.
        token: index in the dictionary.
        position: position in the sentence, counted from 1.
        length: number of tokens of the sentence.
        frequency: count of the token in the dictionary.
        copied: whether the target sentence has a token with the same text; None for data without a target.
        part: TRAIN, VALID or TEST. All tokens of a sentence are in the same part.
    """

    sentence: np.ndarray
    token: np.ndarray
    position: np.ndarray
    length: np.ndarray
    frequency: np.ndarray
    copied: np.ndarray | None
    part: np.ndarray

    def __len__(self) -> int:
        return len(self.token)


@dataclass(frozen=True)
class Property:
    """A property that a probe predicts. The property assigns a class to each token.

    Attributes:
        name: name of the property.
        about: description.
        labels: class of each token; -1 for tokens without a class, which are not used.
        control: class of each token in the control task; -1 where ``labels`` is -1.
        classes: number of classes.
        majority: accuracy on the test tokens if the most frequent class of the training tokens is always predicted.
    """

    name: str
    about: str
    labels: np.ndarray
    control: np.ndarray
    classes: int
    majority: float


def split_sentences(sentences: int, seed: int) -> np.ndarray:
    """Assign sentences to parts at random: 60 % TRAIN, 20 % VALID and 20 % TEST."""
    parts = np.full(sentences, TRAIN)
    order = np.random.default_rng([seed, 1]).permutation(sentences)
    fifth = sentences // 5
    parts[order[:fifth]] = VALID
    parts[order[fifth : 2 * fifth]] = TEST
    return parts


def properties(tokens: Tokens, seed: int) -> list[Property]:
    """Return the properties with at least two classes in the training part, and with tokens in the validation and test parts.

    The control task of a property has random classes (Hewitt and Liang, 2019). Each token has a key, and all tokens with the same key get
    the same class. For `frequency` and `copied`, the key is the dictionary entry. For `length`, the key is the length of the sentence. For
    `position` and `token`, the key is the position. If the key of `token` were the dictionary entry, the control task would be `token`
    itself with renamed classes.
    """
    train = tokens.part == TRAIN
    kinds = _most_frequent(tokens.token[train])
    found = [
        ("token", f"one of the {len(kinds)} most frequent tokens", _number_in(tokens.token, kinds), tokens.position),
        ("position", *_bins(tokens.position, train, "place in the sentence"), tokens.position),
        ("length", *_bins(tokens.length, train, "tokens in the sentence"), tokens.length),
        ("frequency", *_bins(tokens.frequency, train, "count of the token in the dictionary"), tokens.token),
    ]
    if tokens.copied is not None:
        about = "whether the target sentence contains the token"
        found.append(("copied", about, tokens.copied.astype(np.int64), tokens.token))
    made = [_property(tokens.part, seed, number, *one) for number, one in enumerate(found)]
    return [one for one in made if one is not None]


def _property(part, seed, number, name, about, labels, key) -> Property | None:
    counted = [labels[(part == which) & (labels >= 0)] for which in (TRAIN, VALID, TEST)]
    if len(np.unique(counted[0])) < 2 or not all(map(len, counted)):
        return None
    counts = np.bincount(counted[0])
    control = control_labels(labels, key, part == TRAIN, np.random.default_rng([seed, 2, number]))
    return Property(
        name, about, labels, control, int((counts > 0).sum()), float((counted[2] == counts.argmax()).mean())
    )


def control_labels(labels: np.ndarray, key: np.ndarray, train: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw a class for each distinct ``key``. A token with the label -1 gets the class -1.

    The keys are put in a random order and then divided into classes. The division gives each class about as many training tokens as in
    ``labels``. With independent draws, a frequent key could make a class much larger than in ``labels``.
    """
    used = labels >= 0
    _, places = np.unique(key, return_inverse=True)
    tokens = np.bincount(places[used & train], minlength=places.max() + 1)
    order = rng.permutation(len(tokens))
    middles = np.empty(len(tokens))
    middles[order] = np.cumsum(tokens[order]) - tokens[order] / 2
    ends = np.cumsum(np.bincount(labels[used & train]))
    classes = np.minimum(np.searchsorted(ends, middles, side="right"), len(ends) - 1)
    return np.where(used, classes[places], -1)


def _most_frequent(tokens) -> np.ndarray:
    kinds, counts = np.unique(tokens, return_counts=True)
    return kinds[np.argsort(-counts, kind="stable")[:MOST_TOKENS]]


def _number_in(values, kinds: Sequence[int] | np.ndarray) -> np.ndarray:
    """Return the index of each value in ``kinds``; -1 for a value that is not in ``kinds``."""
    numbers = {int(kind): place for place, kind in enumerate(kinds)}
    return np.array([numbers.get(int(value), -1) for value in values], dtype=np.int64)


def _bins(values, train, what) -> tuple[str, np.ndarray]:
    """Divide values into bins at the quartiles of the training tokens. Return (description, bin number of each value)."""
    edges = np.unique(np.quantile(values[train], _QUARTILES, method="lower"))
    edges = edges[edges < values[train].max()]
    bounds = [*(f"to {edge:,}" for edge in edges), "more"]
    return f"{what}: {', '.join(bounds)}", np.searchsorted(edges, values, side="left")
