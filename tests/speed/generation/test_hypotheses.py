"""Hypotheses are restored from the history of the beams."""

import numpy as np
import pytest
import torch

from fairseq_reservoir.speed.generation.buckets import Sizes
from fairseq_reservoir.speed.generation.hypotheses import read_hypotheses
from fairseq_reservoir.speed.generation.state import new_state

EOS = 2


@pytest.fixture
def state():
    """Two sentences of two beams after three steps. The first one is finished with two hypotheses. The third entry does not count.

    Sentence 0: beams hold 5 and 6 after step 0. Both beams of step 1 continue beam 1: 6 7 and 6 8.
    """
    found = new_state(Sizes(3, 4, 8), 2, [], "cpu")
    found.chosen[0, 0], found.parent[0, 0], found.total[0, 0] = (
        torch.tensor(row) for row in ([5, 6], [0, 0], [-1, -2])
    )
    found.chosen[1, 0], found.parent[1, 0], found.total[1, 0] = (
        torch.tensor(row) for row in ([7, 8], [1, 1], [-3, -5])
    )
    found.finished[:] = torch.tensor([True, False, True])
    found.count[0] = 2
    found.end_step[0] = torch.tensor([1, 2, 7])
    found.end_beam[0] = torch.tensor([0, 1, 0])
    found.end_score[0] = torch.tensor([-4.0, -5.25, 9.0])
    return found


def test_hand_worked(state):
    first, second = read_hypotheses(state, 3, 2, EOS, len_penalty=1.0)
    assert second is None
    assert [one["tokens"].tolist() for one in first] == [[6, 8, EOS], [5, EOS]]
    assert [float(one["score"]) for one in first] == [-1.75, -2.0]
    assert [one["positional_scores"].tolist() for one in first] == [[-2, -3, -0.25], [-1, -3]]
    assert first[0]["tokens"].dtype == torch.int64 and first[0]["score"].shape == ()
    assert first[0]["attention"].numel() == first[0]["alignment"].numel() == 0


def test_without_normalisation(state):
    (found,) = read_hypotheses(state, 3, 1, EOS, len_penalty=None)
    assert [float(one["score"]) for one in found] == [-4.0, -5.25]


def test_length_penalty(state):
    (found,) = read_hypotheses(state, 3, 1, EOS, len_penalty=0.5)
    expected = [np.float32(-4) / np.float32(2**0.5), np.float32(-5.25) / np.float32(3**0.5)]
    assert [float(one["score"]) for one in found] == sorted(map(float, expected), reverse=True)


def test_equal_scores_keep_their_order(state):
    state.end_score[0] = torch.tensor([-4.0, -6.0, 9.0])
    (found,) = read_hypotheses(state, 3, 1, EOS, len_penalty=1.0)
    assert [len(one["tokens"]) for one in found] == [2, 3]
