"""Restore finished hypotheses from the history of a beam search. This runs on the CPU."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from .state import State


def read_hypotheses(
    state: State, done: int, sentences: int, eos: int, len_penalty: float | None
) -> list[list[dict[str, Tensor]] | None]:
    """Return the hypotheses of each finished sentence in fairseq's format, the best first; None for an unfinished sentence.

    The score of n tokens with log probabilities p_i is (p_1 + ... + p_n) / n^len_penalty. Without normalisation, the score is the sum.
    Hypotheses with equal scores are sorted by the steps at which they ended.

    Args:
        state: the state after ``done`` steps. Reading it waits for the device.
        done: number of steps.
        sentences: number of rows of the state that are not padding.
        eos: index of the end-of-sentence token.
        len_penalty: exponent of the length; None without normalisation.
    """
    finished, count, end_step, end_beam, end_score = (
        tensor[:sentences].cpu().numpy()
        for tensor in (state.finished, state.count, state.end_step, state.end_beam, state.end_score)
    )
    end_step, end_beam, end_score = end_step[:, :-1], end_beam[:, :-1], end_score[:, :-1]
    history = [tensor[:done, :sentences].cpu().numpy() for tensor in (state.parent, state.chosen, state.total)]
    tokens, totals = trace(history, end_step, end_beam, end_score, eos)
    positional = np.diff(totals, axis=2, prepend=np.float32(0))
    lengths = end_step + 1
    # A float, because NumPy cannot raise integers to negative integer powers.
    score = end_score if len_penalty is None else end_score / (lengths ** float(len_penalty)).astype(np.float32)
    exists = np.arange(end_step.shape[1]) < count[:, None]
    order = np.argsort(np.where(exists, -score, np.inf), axis=1, kind="stable").tolist()
    token, part, whole = (torch.from_numpy(array) for array in (tokens, positional, score))
    lengths, count = lengths.tolist(), count.tolist()
    return [
        [
            _as_fairseq(token[row, place], part[row, place], whole[row, place], lengths[row][place])
            for place in order[row][: count[row]]
        ]
        if is_finished
        else None
        for row, is_finished in enumerate(finished.tolist())
    ]


def trace(history: list[Any], end_step: Any, end_beam: Any, end_score: Any, eos: int) -> tuple[Any, Any]:
    """Follow hypotheses back from their last beams. Return tokens and cumulative log probabilities, (sentences, hypotheses, steps).

    Args:
        history: ``parent``, ``chosen`` and ``total`` of a ``State``.
        end_step: step of the end-of-sentence token, (sentences, hypotheses). Entries without a hypothesis are arbitrary.
        end_beam: beam that held the hypothesis before ``end_step``.
        end_score: sum of the log probabilities of all tokens, including end of sentence.
        eos: index of the end-of-sentence token. All positions after the end are also filled with this token.
    """
    parent, chosen, total = history
    sentences, ends = end_step.shape
    steps = len(parent)
    tokens = np.full((sentences, ends, steps), eos, dtype=np.int64)
    totals = np.zeros((sentences, ends, steps), dtype=np.float32)
    rows, columns = np.ogrid[:sentences, :ends]
    end_step = np.minimum(end_step, steps - 1)
    totals[rows, columns, end_step] = end_score
    beam = end_beam.copy()
    for step in range(steps - 2, -1, -1):
        is_inside = step < end_step
        tokens[:, :, step] = np.where(is_inside, chosen[step][rows, beam], eos)
        totals[:, :, step] = np.where(is_inside, total[step][rows, beam], totals[:, :, step])
        beam = np.where(is_inside, parent[step][rows, beam], beam)
    return tokens, totals


def _as_fairseq(tokens: Tensor, positional: Tensor, score: Tensor, length: int) -> dict[str, Tensor]:
    return {
        "tokens": tokens[:length],
        "score": score,
        "attention": torch.empty(0),
        "alignment": torch.empty(0),
        "positional_scores": positional[:length],
    }
