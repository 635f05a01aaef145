"""Write reports of fairseq-train runs: tables, figures and an HTML page, computed from logs. Imports neither torch nor fairseq."""

from .answers import answers
from .build import measure, report
from .log_reader import read_log
from .options import ReportOptions
from .runs import find_runs

__all__ = ["ReportOptions", "answers", "find_runs", "measure", "read_log", "report"]
