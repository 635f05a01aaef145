"""Choose the sentences and tokens that are probed."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from .properties import Tokens, split_sentences


def choose_sentences(sentences: Iterable[Any], most: int, seed: int) -> list[Any]:
    """Draw at most ``most`` different sentences. Repeats are removed, so that no test sentence is also a training sentence."""
    different = list({one.tokens.tobytes(): one for one in sentences}.values())
    drawn = np.random.default_rng([seed, 4]).permutation(len(different))[:most]
    return [different[i] for i in np.sort(drawn)]


def tokens_of(sentences: Sequence[Any], counts: Sequence[int], specials: int, most: int, seed: int) -> Tokens:
    """Draw at most ``most`` tokens from the sentences.

    Args:
        sentences: objects with two attributes: the array ``tokens``, and ``copied``, which is an array or None.
        counts: count of each entry of the dictionary.
        specials: number of special symbols at the start of the dictionary. They are never drawn.
        most: maximum number of tokens.
        seed: random seed for drawing the tokens and for dividing the sentences into parts.
    """
    lengths = np.array([len(one.tokens) for one in sentences])
    token = np.concatenate([one.tokens for one in sentences])
    drawn = np.flatnonzero(token >= specials)
    if len(drawn) > most:
        drawn = np.sort(np.random.default_rng([seed, 5]).choice(drawn, most, replace=False))
    sentence = np.repeat(np.arange(len(sentences)), lengths)[drawn]
    position = np.concatenate([np.arange(1, length + 1) for length in lengths])[drawn]
    has_target = all(one.copied is not None for one in sentences)
    return Tokens(
        sentence,
        token[drawn],
        position,
        lengths[sentence],
        np.asarray(counts)[token[drawn]],
        np.concatenate([one.copied for one in sentences])[drawn] if has_target else None,
        split_sentences(len(sentences), seed)[sentence],
    )


def gather(outputs: Iterable[tuple[int, np.ndarray]], tokens: Tokens) -> np.ndarray:
    """Select the outputs of the drawn tokens. Return an array (layers, tokens, width).

    Args:
        outputs: pairs (number of the sentence, array (layers, tokens of the sentence, width)), in any order.
        tokens: the drawn tokens, ordered by sentence.
    """
    gathered: np.ndarray | None = None
    for number, states in outputs:
        if gathered is None:
            gathered = np.empty((len(states), len(tokens), states.shape[2]), dtype=np.float32)
        first, end = np.searchsorted(tokens.sentence, [number, number + 1])
        gathered[:, first:end] = states[:, tokens.position[first:end] - 1]
    assert gathered is not None
    return gathered
