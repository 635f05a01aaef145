"""Measures of a validation curve: its best score, the cost at which it reaches a target, and the area under it (AUCC).

A curve is a list of points (x, score) with ascending x. x is a cost, such as seconds of training.
"""


def best(curve, higher: bool):
    """Return the point (x, score) of the best validation. If several scores are equally good, return the first point."""
    return (max if higher else min)(curve, key=lambda point: point[1])


def reach(curve, target: float, higher: bool, start: float | None = None) -> float | None:
    """Return the x at which the curve first reaches ``target``; None if it never does.

    The curve is linear between validations.

    Args:
        curve: points (x, score).
        target: a score.
        higher: whether higher scores are better.
        start: the score at x = 0. If ``start`` is None, the curve begins at the first validation.
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
    """Return the area under the convergence curve (AUCC): the integral of the score over x, from 0 to ``horizon``.

    The score is linear between validations, and constant after the last one. Before the first validation it is linear from ``start``
    at x = 0. If ``start`` is None, the score before the first validation equals the first score. Use None for scores such as the loss,
    where lower is better, because an untrained model has no useful score.

    Args:
        curve: points (x, score), x >= 0.
        horizon: end of the integral, above 0. It must be the same for all curves that are compared.
        start: the score at x = 0, or None.
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
    """Return the score at ``x`` by linear interpolation between the points. Outside the curve, return the score of the nearest point."""
    before = [point for point in curve if point[0] <= x]
    after = [point for point in curve if point[0] > x]
    if not before or not after:
        return (before or after)[-1 if before else 0][1]
    (x0, y0), (x1, y1) = before[-1], after[0]
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0)


def _from_zero(curve, start):
    return [(0.0, start), *curve] if start is not None and curve[0][0] > 0 else list(curve)
