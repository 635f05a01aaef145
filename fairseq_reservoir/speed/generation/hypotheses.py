"""Restore finished hypotheses from the history of a beam search, on the CPU."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from .state import State


def read_hypotheses(
    state: State, done: int, sentences: int, eos: int, len_penalty: float | None
) -> list[list[dict[str, Tensor]] | None]:
    """Read the hypotheses of each finished sentence in fairseq's format, the best first; None for an unfinished sentence.

    The score of n tokens with the log probabilities p_i is (p_1 + ... + p_n) / n^len_penalty, or the sum alone. Hypotheses with the
    same score keep the order of their ends.

    Args:
        state: the state after ``done`` steps. Reading it waits for the device.
        done: number of steps.
        sentences: number of rows that are not padding.
        eos: the end of sentence.
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
    # A float, because NumPy has no negative whole powers of whole numbers.
    score = end_score if len_penalty is None else end_score / (lengths ** float(len_penalty)).astype(np.float32)
    is_there = np.arange(end_step.shape[1]) < count[:, None]
    order = np.argsort(np.where(is_there, -score, np.inf), axis=1, kind="stable")
    return _as_fairseq(
        torch.from_numpy(tokens),
        torch.from_numpy(positional),
        torch.from_numpy(score),
        lengths=lengths.tolist(),
        order=order.tolist(),
        count=count.tolist(),
        finished=finished.tolist(),
    )


def trace(history: list[Any], end_step: Any, end_beam: Any, end_score: Any, eos: int) -> tuple[Any, Any]:
    """Tokens and sums of log probabilities (sentences, hypotheses, steps) of hypotheses, followed back from their last beams.

    Args:
        history: ``parent``, ``chosen`` and ``total`` of a ``State``.
        end_step: step of the end of sentence, (sentences, hypotheses). Values of hypotheses that do not exist are arbitrary.
        end_beam: beam before this step.
        end_score: sum of log probabilities with the end of sentence.
        eos: the end of sentence, which also fills the places after the end.
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


def _as_fairseq(
    tokens: Tensor,
    positional: Tensor,
    score: Tensor,
    lengths: list[list[int]],
    order: list[list[int]],
    count: list[int],
    finished: list[bool],
) -> list[list[dict[str, Tensor]] | None]:
    return [
        [
            {
                "tokens": tokens[row, place, : lengths[row][place]],
                "score": score[row, place],
                "attention": torch.empty(0),
                "alignment": torch.empty(0),
                "positional_scores": positional[row, place, : lengths[row][place]],
            }
            for place in order[row][: count[row]]
        ]
        if finished[row]
        else None
        for row in range(len(finished))
    ]
