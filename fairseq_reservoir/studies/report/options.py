"""The options of a report. ``commands/report.py`` fills them from the command line."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import InputError


@dataclass(frozen=True)
class ReportOptions:
    """Options of a report; each field is the flag of its name.

    Attributes:
        runs: folders, each a run or a parent of runs.
        out: folder to write; not used by ``measure``.
        metric: score of the validations; see ``metrics.choose`` for the default.
        target: score to reach; by default ``measures.common_target``.
        horizon: end of the AUCC over time in seconds; by default ``measures.common_horizons``.
        baseline: name of the arm that others are compared with; by default the first.
        against: key of the configuration to show scores against.
        references: file of the test set's references, instead of fairseq-generate's T-lines.
        ignore: keys of the configuration in which the runs of one arm may differ.
        points: other files in the figure of sizes, each (name, bytes, sacreBLEU) as text.
        comparisons: pairs of arms to compare, by name; their p-values are corrected together.
        figures: whether to draw figures.

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
