"""Measures of a validation curve, a list of (x, score) in ascending x: best score, cost of a target, and AUCC."""


def best(curve, higher: bool):
    """Return (x, score) of the best validation, the first of equal ones."""
    return (max if higher else min)(curve, key=lambda point: point[1])


def reach(curve, target: float, higher: bool, start: float | None = None) -> float | None:
    """Return the x where the curve first reaches ``target``, linear between validations; None if it never does.

    Args:
        curve: points (x, score).
        target: a score.
        higher: whether higher scores are better.
        start: the score at x = 0. Without it no target is reached before the first validation.
    """
    sign = 1 if higher else -1
    last = None
    for x, score in _from_zero(curve, start):
        if sign * score >= sign * target:
            if last is None or last[1] == score:
                return x
            return last[0] + (x - last[0]) * (target - last[1]) / (score - last[1])
        last = x, score
    return None


def aucc(curve, horizon: float, start: float | None = None) -> float:
    """Area under the convergence curve from 0 to ``horizon``.

    A(T) = integral of y(x) dx over 0 <= x <= T, with trapezoids between validations. After the last validation y keeps its value. At T
    the segment is cut with linear interpolation. Before the first validation y runs linearly from ``start`` at 0. If ``start`` is
    None, y has the value of the first validation. This is for lower-is-better scores, which an untrained model does not have.

    Args:
        curve: points (x, score), x >= 0.
        horizon: T > 0, the same for all curves that are compared.
        start: y(0), or None.
    """
    points = _from_zero(curve, start)
    if points[0][0] > 0:
        points = [(0.0, points[0][1]), *points]
    points = [*points, (max(horizon, points[-1][0]), points[-1][1])]
    area = 0.0
    for (x0, y0), (x1, y1) in zip(points, points[1:]):
        if x0 >= horizon:
            break
        if x1 > horizon:
            x1, y1 = horizon, y0 + (y1 - y0) * (horizon - x0) / (x1 - x0)
        area += (x1 - x0) * (y0 + y1) / 2
    return area


def value_at(curve, x: float) -> float:
    """Interpolate linearly between the points. Outside, return the first or the last value."""
    before = [point for point in curve if point[0] <= x]
    after = [point for point in curve if point[0] > x]
    if not before or not after:
        return (before or after)[-1 if before else 0][1]
    (x0, y0), (x1, y1) = before[-1], after[0]
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0)


def _from_zero(curve, start):
    return [(0.0, start), *curve] if start is not None and curve[0][0] > 0 else list(curve)
