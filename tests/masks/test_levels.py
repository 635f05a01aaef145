"""Levels and scales: examples by hand, and a reference that compares all levels for every weight."""

import math

import pytest
import torch
from hypothesis import given, settings, strategies as st

from fairseq_reservoir.masks import bits
from fairseq_reservoir.masks.levels import KINDS, NORMAL_STEPS, Levels


def rounded(kind, weight):
    """Return the rounded matrix, its levels and its scales."""
    levels = Levels(kind)
    scales = levels.scales(weight)
    return levels.nearest(weight, scales) * scales, levels.nearest(weight, scales), scales


def test_sign_by_hand():
    # Mean magnitudes of the rows: (1 + 2 + 3) / 3 = 2 and (4 + 0 + 5) / 3 = 3. Scales are 4 and 6, from -2 to 2 and from -3 to 3.
    value, levels, scales = rounded("sign", torch.tensor([[1.0, -2.0, 3.0], [4.0, 0.0, -5.0]]))
    assert scales.tolist() == [[4.0], [6.0]]
    assert levels.tolist() == [[0.5, -0.5, 0.5], [0.5, 0.5, -0.5]]
    assert value.tolist() == [[2.0, -2.0, 2.0], [3.0, 3.0, -3.0]]


def test_ternary_by_hand():
    # Mean magnitude (0.2 + 0.9 + 1.4 + 0.4 + 3.6 + 0.7) / 6 = 7.2 / 6 = 1.2; quotients 0.17 -0.75 1.17 0.33 -3 -0.58.
    value, levels, scales = rounded("ternary", torch.tensor([[0.2, -0.9, 1.4], [0.4, -3.6, -0.7]]))
    assert scales.tolist() == [[pytest.approx(1.2)]]
    assert levels.tolist() == [[0, -1, 1], [0, -1, -1]]
    assert value.tolist() == [[0, pytest.approx(-1.2), pytest.approx(1.2)], [0, *[pytest.approx(-1.2)] * 2]]


def test_four_levels_by_hand():
    # sqrt(mean(w^2)) = sqrt((1 + 1 + 9 + 25) / 4) = 3, scale 2.9871; quotients 0.33 -0.33 1.004 -1.67.
    value, levels, scales = rounded("4", torch.tensor([[1.0, -1.0, 3.0, -5.0]]))
    assert scales.tolist() == [[pytest.approx(3 * 0.9957)]]
    assert levels.tolist() == [[0.5, -0.5, 1.5, -1.5]]
    assert value[0, 3].item() == pytest.approx(-1.5 * 2.9871)


def test_five_levels_by_hand():
    # sqrt((4 + 4 + 36 + 100) / 4) = 6, scale 5.058; quotients 0.395 -0.395 1.19 -1.98.
    _, levels, scales = rounded("5", torch.tensor([[2.0, -2.0, 6.0, -10.0]]))
    assert scales.tolist() == [[pytest.approx(6 * 0.8430)]]
    assert levels.tolist() == [[0, 0, 1, -2]]


@pytest.mark.parametrize("kind", KINDS)
def test_zeros_stay_zeros(kind):
    weight = torch.zeros(2, 3)
    assert rounded(kind, weight)[0].tolist() == weight.tolist()
    weight[0] = torch.tensor([1.0, -2.0, 3.0])
    value = rounded(kind, weight)[0]
    assert value[1].tolist() == [0, 0, 0] and value[0].any()


def looked_up(kind, weight):
    """Nearest level of each weight by Python numbers; scales by their definitions."""
    levels, rows = Levels(kind), weight.double().tolist()
    magnitudes = [abs(w) for row in rows for w in row]
    found = []
    for row in rows:
        scale = {"sign": 2 * sum(map(abs, row)) / len(row), "ternary": sum(magnitudes) / len(magnitudes)}.get(kind)
        if scale is None:
            scale = NORMAL_STEPS[int(kind)] * math.sqrt(sum(w * w for w in row) / len(row))
        values = [scale * (number - (levels.count - 1) / 2) for number in range(levels.count)]
        found.append([min(values, key=lambda value: abs(value - w)) for w in row])
    return torch.tensor(found)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.sampled_from(KINDS), st.integers(1, 6), st.integers(1, 9), st.integers(0, 999), st.floats(0.01, 100))
def test_the_nearest_level(kind, rows, columns, seed, size):
    weight = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)) * size
    torch.testing.assert_close(rounded(kind, weight)[0], looked_up(kind, weight), rtol=1e-5, atol=1e-7)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(st.sampled_from(KINDS), st.integers(1, 6), st.integers(1, 9), st.integers(0, 999))
def test_numbers_in_bits_and_back(kind, rows, columns, seed):
    weight = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))
    levels, (_, of_weight, _) = Levels(kind), rounded(kind, weight)
    numbers = levels.numbers(of_weight)
    assert 0 <= numbers.min() and numbers.max() < levels.count <= 2**levels.bits < 2 * levels.count
    unpacked = bits.unpack(bits.pack(numbers, levels.bits), (rows, columns), levels.bits)
    assert torch.from_numpy(levels.from_numbers(unpacked.numpy())).equal(of_weight)


def error_of_step(count, step):
    """E[(x - rounded x)^2] for x normally distributed, summed over a fine grid."""
    total, width = 0.0, 0.001
    for x in (width * (i + 0.5) for i in range(7000)):
        nearest = round(x / step) if count % 2 else math.floor(x / step) + 0.5
        total += (
            2 * width * math.exp(-x * x / 2) / math.sqrt(2 * math.pi) * (x - step * min(nearest, (count - 1) / 2)) ** 2
        )
    return total


@pytest.mark.parametrize("count", [3, 4, 5, 8, 16])
def test_the_steps_have_the_least_error_for_normal_weights(count):
    step = NORMAL_STEPS[count]
    assert error_of_step(count, step) < min(error_of_step(count, step * (1 + change)) for change in (-0.03, 0.03))


def test_their_errors_are_those_of_the_table():
    # Max (1960), table II: the mean squared error of 3, 4, 8 and 16 levels.
    found = [error_of_step(count, NORMAL_STEPS[count]) for count in (3, 4, 8, 16)]
    assert found == pytest.approx([0.1902, 0.1188, 0.03744, 0.01154], rel=0.01)


@pytest.mark.parametrize("kind", ["", "2", "17", "04", "binary", "Sign", "4.0"])
def test_refused(kind):
    with pytest.raises(ValueError, match=f"^kind {kind}: must be sign, ternary, or a number of levels from 3 to 16$"):
        Levels(kind)
