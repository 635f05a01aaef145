"""Show the last lines of a failed run's log, without the frames of a traceback."""

import os
from pathlib import Path

from ...errors import in_one_line
from ...files import open_regular
from ..report.log_reader import lines_of_log

_TAIL = 1 << 16


def last_lines(log: Path | None, most: int = 5) -> list[str]:
    """Return at most ``most`` lines from the end of a log, without empty lines; [] if the log cannot be read.

    Indented lines after "Traceback" or "usage:", such as frames or lists of flags, are left out.
    """
    if log is None:
        return []
    try:
        with open_regular(log) as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL))
            text = file.read(_TAIL).decode("utf-8", "replace")
    except OSError:
        return []
    found, is_inside = [], False
    for line in filter(str.strip, lines_of_log(text)):
        if line.startswith(("Traceback (", "usage: ")):
            is_inside = True
        elif not (is_inside and line[0].isspace()):
            is_inside = False
            found.append(in_one_line(line.rstrip()))
    return found[-most:]
