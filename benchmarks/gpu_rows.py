"""Rows of a benchmark with a time limit: each is printed and saved at once, so that an interrupted run loses nothing."""

import json
import os
import time
from pathlib import Path


class Rows:
    """Rows in the file ``prefix``.jsonl.

    Args:
        prefix: the path of the output without its extension. An older file is overwritten.
        minutes: time limit from now on, or None.
    """

    def __init__(self, prefix, minutes=None):
        self.file, self.rows = Path(f"{prefix}.jsonl"), []
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text("")
        self.end = None if minutes is None else time.monotonic() + 60 * minutes

    def is_over(self):
        """Whether the time limit has passed."""
        return self.end is not None and time.monotonic() >= self.end

    def add(self, **row):
        """Print a row and append it to the file, which is then written to the disk."""
        self.rows.append(row)
        line = json.dumps(row)
        print(line, flush=True)
        with open(self.file, "a", encoding="utf-8") as file:
            file.write(line + "\n")
            file.flush()
            os.fsync(file.fileno())

    def of_kind(self, kind):
        """The rows with this value of ``kind``, in order."""
        return [row for row in self.rows if row["kind"] == kind]


def add_arguments(parser, output):
    """Add the arguments of benchmarks with a time limit."""
    parser.add_argument("--minutes", type=float, help="begin nothing new after this many minutes")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--threads", type=int, help="threads of torch (default: torch's own choice)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tiny", action="store_true", help="tiny models and corpora, to try the command")
    parser.add_argument(
        "--output", type=Path, default=Path("runs") / output,
        help="prefix of the .jsonl file, which is written row by row, and of the .json and the .md file",
    )  # fmt: skip
