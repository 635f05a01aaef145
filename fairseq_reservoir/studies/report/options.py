"""The options of a report. ``commands/report.py`` fills them from the command line."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import InputError


@dataclass(frozen=True)
class ReportOptions:
    """Options of a report, from the flags of `fairseq-reservoir report`.

    Attributes:
        runs: folders; each is the folder of a run or contains such folders.
        out: folder to write; not used by ``measure``.
        metric: name of the validation score; see ``metrics.choose`` for the default.
        target: score to reach; the report compares what each arm needs to reach it. By default ``measures.common_target``.
        horizon: upper limit of the time axis of the AUCC, in seconds; by default ``measures.common_horizons``.
        baseline: name of the arm that all other arms are compared with; by default the first arm.
        against: configuration key; the report shows the scores against its values.
        references: file with the references of the test set; by default fairseq-generate's T-lines are used.
        choose: configuration key; among arms that differ only in this key, the report shows only the best arm.
        ignore: configuration keys in which the runs of an arm may differ.
        points: additional points in the figure of file sizes; each has three strings: a name, the size in bytes and sacreBLEU.
        comparisons: pairs of names of arms to compare; their p-values are corrected together.
        figures: whether figures are drawn.

    Raises:
        InputError: ``target`` or ``horizon`` is out of range.
    """

    runs: Sequence[str]
    out: str = ""
    metric: str | None = None
    target: float | None = None
    horizon: float | None = None
    baseline: str | None = None
    against: str | None = None
    choose: str | None = None
    references: str | None = None
    ignore: Sequence[str] = ()
    points: Sequence[Sequence[str]] = ()
    comparisons: Sequence[Sequence[str]] = ()
    figures: bool = True

    def __post_init__(self):
        if self.target is not None and not abs(self.target) < 1e100:
            raise InputError(f"--target {self.target:g}: must be a finite number")
        if self.horizon is not None and not 0 < self.horizon < math.inf:
            raise InputError(f"--horizon {self.horizon:g}: must be a positive number of seconds")
