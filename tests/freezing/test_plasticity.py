"""When a layer has learned: numbers worked out by hand, and a slow reference that goes over all looks again."""

import math

import pytest
import torch
from hypothesis import given, strategies as st

from fairseq_reservoir.freezing.plasticity import PATIENCE, Plasticity, similarities


def test_similarities_by_hand():
    """x_1 = (1, 0), x_2 = (1, 1): products [[1, 1], [1, 2]], rows of length sqrt(2) and sqrt(5)."""
    found = similarities(torch.tensor([[1.0, 0.0], [1.0, 1.0]]))
    expected = [[1 / math.sqrt(2), 1 / math.sqrt(2)], [1 / math.sqrt(5), 2 / math.sqrt(5)]]
    torch.testing.assert_close(found, torch.tensor(expected))


def test_a_turned_or_scaled_output_says_the_same():
    rows = torch.randn(7, 4, generator=torch.Generator().manual_seed(1))
    turn, _ = torch.linalg.qr(torch.randn(4, 4, generator=torch.Generator().manual_seed(2)))
    torch.testing.assert_close(similarities(3 * rows @ turn), similarities(rows))
    assert not torch.allclose(similarities(rows.flip(0)), similarities(rows))


def test_an_output_of_zero_is_like_nothing():
    assert similarities(torch.tensor([[0.0, 0.0], [2.0, 0.0]])).tolist() == [[0, 0], [0, 1]]


def test_half_precision_is_compared_in_float32():
    rows = torch.tensor([[300.0, 0.0], [0.0, 300.0]], dtype=torch.float16)  # 300 x 300 is more than float16 holds
    assert similarities(rows).tolist() == [[1, 0], [0, 1]]


def test_plasticity_by_hand():
    """From [[1, 0], [0, 1]] to [[0, 1], [0, 1]]: one row of two moved by sqrt(2), sqrt(2) / sqrt(2) = 1."""
    criterion = Plasticity(["a"])
    criterion.look({"a": torch.eye(2)})
    assert criterion.values == {}
    criterion.look({"a": torch.tensor([[0.0, 1.0], [0.0, 1.0]])})
    assert criterion.values == {"a": pytest.approx(1.0)}


def walk(*values):
    """Similarities of one row that move by the differences of ``values``."""
    return [torch.tensor([[float(value)]]) for value in values]


def test_a_layer_has_learned_when_it_has_changed_little_twice():
    """Changes 1, 0.5, 0.1, 0.4, 0.2, 0.1; less than 0.3 of the largest, 1, are the 3rd, the 5th and the 6th: learned at the 7th look."""
    criterion = Plasticity(["a"], threshold=0.3)
    learned = [criterion.look({"a": s}) for s in walk(0, 1, 1.5, 1.6, 2.0, 2.2, 2.3)]
    assert learned == [[]] * 6 + [["a"]]


def test_the_largest_change_may_come_late():
    """Changes 0.1, 0.05, 1, 0.2, 0.1: 0.05 is not less than 0.3 of 0.1, and 0.2 and 0.1 are less than 0.3 of 1."""
    criterion = Plasticity(["a"], threshold=0.3)
    learned = [criterion.look({"a": s}) for s in walk(0, 0.1, 0.15, 1.15, 1.35, 1.45)]
    assert learned == [[]] * 5 + [["a"]]


def test_none_freezes_above_one_that_still_learns():
    """b settles first; when a has too, both freeze at once, and c, which has not, does not."""
    criterion = Plasticity(["a", "b", "c"], threshold=0.5)
    a, b, c = walk(0, 1, 2, 2.1, 2.2), walk(0, 1, 1.1, 1.2, 1.3), walk(0, 1, 2, 3, 4)
    learned = [criterion.look(dict(zip("abc", now))) for now in zip(a, b, c)]
    assert learned == [[], [], [], [], ["a", "b"]]
    criterion.drop(["a", "b"])
    assert criterion.names == ["c"] and criterion.last.keys() == criterion.largest.keys() == {"c"}
    assert criterion.look({"c": torch.tensor([[5.0]])}) == []


def test_a_layer_that_never_changes_has_learned():
    criterion = Plasticity(["a"])
    assert [criterion.look({"a": torch.eye(2)}) for _ in range(3)] == [[], [], ["a"]]


def slowly(history, threshold):
    """The look at which each layer freezes, or none, from the beginning every time."""
    frozen = {}
    for now in range(len(history[0])):
        for layer, values in enumerate(history):
            if layer in frozen:
                continue
            changes = [abs(values[t] - values[t - 1]) for t in range(1, now + 1)]
            calm = [change < threshold * max(changes[: t + 1]) for t, change in enumerate(changes)]
            if len(calm) < PATIENCE or not all(calm[-PATIENCE:]):
                break
            frozen[layer] = now
    return frozen


@given(
    st.integers(1, 8).flatmap(
        lambda looks: st.lists(st.lists(st.integers(0, 20), min_size=looks, max_size=looks), min_size=1, max_size=4)
    ),
    st.sampled_from([0.25, 0.5]),
    st.booleans(),
)
def test_against_a_slow_reference(history, threshold, resumed):
    # No layer stands still from the first look on, of which the test above is.
    history = [[0, 64, *(64 + value for value in values)] for values in history]
    criterion, frozen = Plasticity(map(str, range(len(history))), threshold), {}
    for look in range(len(history[0])):
        learned = criterion.look({name: torch.tensor([[float(history[int(name)][look])]]) for name in criterion.names})
        criterion.drop(learned)
        frozen |= {int(name): look for name in learned}
        if resumed:
            state = criterion.state_dict()
            criterion = Plasticity(map(str, range(len(history))), threshold)
            criterion.load_state_dict(state)
    assert frozen == slowly(history, threshold)
