"""AUCC, best score and cost of a target, on curves computed by hand."""

import pytest

from fairseq_reservoir.studies.report.curves import aucc, best, reach, value_at


def test_a_constant_curve_fills_its_rectangle():
    assert aucc([(0, 30.0), (1, 30.0), (4, 30.0)], 4, 0.0) == 30 * 4


def test_a_linear_curve_is_a_triangle():
    # y = 10 x from 0 to 3 gives 3 * 30 / 2, although the first validation is at 1.
    assert aucc([(1, 10.0), (2, 20.0), (3, 30.0)], 3, 0.0) == pytest.approx(45)


def test_a_curve_shorter_than_the_horizon_keeps_its_last_value():
    # Triangle 2 * 20 / 2 = 20, then 3 more at 20.
    assert aucc([(2, 20.0)], 5, 0.0) == pytest.approx(20 + 60)


def test_a_curve_longer_than_the_horizon_is_cut_by_interpolation():
    # At 3 the line from (2, 20) to (4, 40) is at 30: 2 * 20 / 2 + 1 * (20 + 30) / 2.
    assert aucc([(2, 20.0), (4, 40.0)], 3, 0.0) == pytest.approx(20 + 25)
    # Cut before the first validation: at 1 the line from (0, 0) is at 10.
    assert aucc([(2, 20.0), (4, 40.0)], 1, 0.0) == pytest.approx(5)


def test_irregular_times():
    # 0-1: 5;  1-1.5: 0.5 * (10 + 14) / 2 = 6;  1.5-4: 2.5 * (14 + 12) / 2 = 32.5;  4-10: 6 * 12 = 72.
    assert aucc([(1, 10.0), (1.5, 14.0), (4, 12.0)], 10, 0.0) == pytest.approx(5 + 6 + 32.5 + 72)


def test_lower_is_better_holds_the_first_value_before_it():
    # 0-2 at 8: 16;  2-4: 2 * (8 + 4) / 2 = 12;  4-5 at 4: 4.
    assert aucc([(2, 8.0), (4, 4.0)], 5, None) == pytest.approx(32)
    # Cut at 1, before the first validation.
    assert aucc([(2, 8.0), (4, 4.0)], 1, None) == pytest.approx(8)


def test_a_validation_at_zero_is_used_instead_of_the_start():
    assert aucc([(0, 10.0), (2, 10.0)], 2, 0.0) == pytest.approx(20)


def test_best_is_the_first_of_equals():
    assert best([(1, 5.0), (2, 7.0), (3, 7.0)], higher=True) == (2, 7.0)
    assert best([(1, 5.0), (2, 4.0), (3, 4.0)], higher=False) == (2, 4.0)


def test_reach_is_linear_between_validations():
    curve = [(10, 10.0), (20, 30.0), (30, 20.0)]
    assert reach(curve, 20, True, 0.0) == pytest.approx(15)
    assert reach(curve, 5, True, 0.0) == pytest.approx(5)  # on the line from (0, 0)
    assert reach(curve, 30, True, 0.0) == pytest.approx(20)
    assert reach(curve, 30.1, True, 0.0) is None
    falling = [(10, 8.0), (20, 4.0)]
    assert reach(falling, 5, False) == pytest.approx(17.5)
    assert reach(falling, 9, False) == 10  # there is no score before the first validation
    assert reach(falling, 3.9, False) is None


def test_value_between_and_outside_points():
    assert [value_at([(1, 10.0), (3, 20.0)], x) for x in (0, 1, 2, 3, 9)] == [10, 10, 15, 20, 20]
