"""Restore finished hypotheses from the history of a beam search, on the CPU."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from .state import State


@dataclass(frozen=True)
class Hypothesis:
    """A finished hypothesis.

    Attributes:
        tokens: with the end of sentence, (length,), int64.
        totals: sum of log probabilities up to each token, (length,), float32.
    """

    tokens: torch.Tensor
    totals: torch.Tensor


def read_hypotheses(state: State, done: int, sentences: int, eos: int) -> list[list[Hypothesis] | None]:
    """Read the hypotheses of each finished sentence in the order of their ends; None for an unfinished sentence.

    Args:
        state: the state after ``done`` steps. Reading it waits for the device.
        done: number of steps.
        sentences: number of rows that are not padding.
        eos: the end of sentence.
    """
    finished, count, end_step, end_beam, end_score = (
        tensor[:sentences].cpu().numpy()
        for tensor in (state.finished, state.count, state.end_step, state.end_beam, state.end_score)
    )
    history = [tensor[:done, :sentences].cpu().numpy() for tensor in (state.parent, state.chosen, state.total)]
    tokens, totals = _trace(history, end_step[:, :-1], end_beam[:, :-1], end_score[:, :-1], eos)
    lengths = (end_step + 1).tolist()
    return [
        [Hypothesis(tokens[i, j, : lengths[i][j]], totals[i, j, : lengths[i][j]]) for j in range(count[i])]
        if finished[i]
        else None
        for i in range(sentences)
    ]


def _trace(history: list[Any], end_step: Any, end_beam: Any, end_score: Any, eos: int) -> tuple[Any, Any]:
    """Tokens and totals (sentences, hypotheses, steps) of hypotheses that end at ``end_step`` with the beam ``end_beam`` before it."""
    parent, chosen, total = history
    sentences, ends = end_step.shape
    steps = len(parent)
    tokens = np.full((sentences, ends, steps), eos, dtype=np.int64)
    totals = np.zeros((sentences, ends, steps), dtype=np.float32)
    rows, columns = np.ogrid[:sentences, :ends]
    end_step = np.minimum(end_step, steps - 1)  # rows without a hypothesis have values of an earlier batch
    totals[rows, columns, end_step] = end_score
    beam = end_beam.copy()
    for step in range(steps - 2, -1, -1):
        is_inside = step < end_step
        tokens[:, :, step] = np.where(is_inside, chosen[step][rows, beam], eos)
        totals[:, :, step] = np.where(is_inside, total[step][rows, beam], totals[:, :, step])
        beam = np.where(is_inside, parent[step][rows, beam], beam)
    return torch.from_numpy(tokens), torch.from_numpy(totals)
