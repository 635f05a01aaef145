"""Choices of a mask: ranges, schedule and gain."""

import math
from fractions import Fraction

import pytest

from fairseq_reservoir.plan.mask_choices import MaskChoices


@pytest.mark.parametrize(
    "choices, message",
    [
        ({"keep_ratio": 0}, "keep ratio 0: must be a number greater than 0 and at most 1"),
        ({"keep_ratio": 1.5}, "keep ratio 1.5: must be a number greater than 0 and at most 1"),
        (
            {"coats": (0.5,)},
            r"keep ratios \[0.5, 0.5\]: each ratio must be smaller than the ratio before it, and .* smaller than the keep ratio",
        ),
        (
            {"coats": (0.1, 0.2)},
            r"keep ratios \[0.5, 0.1, 0.2\]: each ratio must be smaller than the ratio before it, and .* smaller than the keep ratio",
        ),
        ({"scope": "layer"}, "scope layer: must be one of tensor, row, global"),
        ({"ranking": "sign"}, "ranking sign: must be one of magnitude, value"),
        ({"kind": "ternary"}, "kind ternary: must be one of binary, signed"),
        ({"kind": "signed", "ranking": "value"}, "kind signed: needs ranking magnitude, .*"),
        (
            {"pin": 1},
            "pin 1: must be at least 0 and less than 1; use random .--mask-random. for a mask that never changes",
        ),
        ({"pin": -0.1}, "pin -0.1: must be at least 0 and less than 1; .*"),
        (
            {"keep_schedule": ((20, 0.7), (10, 0.5))},
            "keep schedule .*: updates must be above 0 and increase, and ratios must not increase",
        ),
        (
            {"keep_schedule": ((10, 0.4), (20, 0.5))},
            "keep schedule .*: updates must be above 0 and increase, and ratios must not increase",
        ),
        (
            {"keep_schedule": ((0, 0.5),)},
            "keep schedule .*: updates must be above 0 and increase, and ratios must not increase",
        ),
        ({"keep_schedule": ((10, 0.6),)}, "keep schedule .*: must end at the keep ratio 0.5"),
    ],
)
def test_refused(choices, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        MaskChoices(**choices)


def test_schedule_goes_in_straight_lines_from_one_to_the_keep_ratio():
    choices = MaskChoices(0.5, coats=(0.2,), keep_schedule=[[10, 0.8], [20, 0.5]])
    # From (0, 1) to (10, 0.8) by 0.02 per update, then to (20, 0.5) by 0.03 per update.
    expected = {0: "1", 1: "0.98", 5: "0.9", 10: "0.8", 11: "0.77", 20: "0.5", 99: "0.5"}
    assert {u: choices.keep_ratios_at(u)[0] for u in (0, 1, 5, 10, 11)} == {
        u: Fraction(r) for u, r in expected.items() if u < 20
    }
    assert choices.keep_ratios_at(20) == choices.keep_ratios_at(99) == choices.keep_ratios == (0.5, 0.2)
    assert choices.keep_ratios_at(7)[1] == 0.2
    assert MaskChoices(0.3).keep_ratios_at(0) == (0.3,)


def test_gain():
    assert MaskChoices(0.25).gain == 2
    # Two of ten entries are 2 and three are 1: E[m^2] = (2 * 4 + 3 * 1) / 10 = 1.1 = 0.5 + 3 * 0.2.
    assert MaskChoices(0.5, coats=(0.2,)).gain == pytest.approx(1 / math.sqrt(1.1))


def test_choices_can_be_compared_and_hashed():
    assert hash(MaskChoices(0.5, coats=[0.2])) == hash(MaskChoices(0.5, coats=(0.2,)))


def test_a_schedule_is_linear_between_its_points():
    """From 1 to 0.5 in 10 updates, then to 0.3 in 4."""
    choices = MaskChoices(0.3, keep_schedule=((10, 0.5), (14, 0.3)))
    ratios = {update: float(choices.keep_ratios_at(update)[0]) for update in (0, 1, 9, 10, 11, 13, 14, 99)}
    assert ratios == pytest.approx({0: 1, 1: 0.95, 9: 0.55, 10: 0.5, 11: 0.45, 13: 0.35, 14: 0.3, 99: 0.3})
