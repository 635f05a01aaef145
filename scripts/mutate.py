"""Test the tests: make each fault of tests/mutations.txt in a copy of the tree and run the tests that must find it.

mutate.py [--from N] [--to N] [--tree FOLDER]

A line of the list is ``file | old text | new text | tests``. The tests are paths below tests/; they run one after the other until one
of them fails. Prints ``found`` or ``MISSED``, the number of the line, the time and the first failed test, and exits with 1 if a fault
was missed. ``--tree`` tests another checkout, such as one of an earlier commit, with its own tests.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIST = ROOT / "tests" / "mutations.txt"


@dataclass
class Mutation:
    """Replacement of ``old`` by ``new`` in a file of the package. ``tests`` are paths below tests/."""

    path: str
    old: str
    new: str
    tests: list[str]


def mutations() -> list[Mutation]:
    lines = [line for line in LIST.read_text().splitlines() if line and not line.startswith("#")]
    rows = [line.split(" | ") for line in lines]
    return [Mutation(f"fairseq_reservoir/{path}", old, new, tests.split()) for path, old, new, tests in rows]


def first_failure(tree: Path, tests: list[str]) -> str | None:
    """Run the default tests of each path. Return the name of the first failed test, or None."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0", "PYTHONPATH": str(tree)}
    for path in tests:
        # Tests may use pytest's cache, here a folder of the copy.
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-x",
            "-rfE",
            "--hypothesis-seed=0",
            "-m",
            "not slow",
            f"tests/{path}",
        ]
        run = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True)
        if run.returncode:
            failed = [line for line in run.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
            return failed[0] if failed else run.stdout.strip().splitlines()[-1]
    return None


def main() -> int:
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument(
        "--from", dest="first", type=int, default=1, metavar="N", help="first line of the list (default: 1)"
    )
    flags.add_argument("--to", type=int, default=None, metavar="N", help="last line (default: the last one)")
    flags.add_argument("--tree", type=Path, default=ROOT, metavar="FOLDER", help="checkout to test (default: this one)")
    given = flags.parse_args()
    missed = 0
    for number, mutation in list(enumerate(mutations(), 1))[given.first - 1 : given.to]:
        with tempfile.TemporaryDirectory() as folder:
            tree = Path(folder) / "tree"
            shutil.copytree(given.tree, tree, ignore=shutil.ignore_patterns(".git", ".venv*", "runs", "__pycache__"))
            source = (tree / mutation.path).read_text()
            if source.count(mutation.old) != 1:
                print(
                    f"{number}: {mutation.path}: {mutation.old!r} occurs {source.count(mutation.old)} times", flush=True
                )
                missed += 1
                continue
            (tree / mutation.path).write_text(source.replace(mutation.old, mutation.new))
            start = time.monotonic()
            failure = first_failure(tree, mutation.tests)
        missed += failure is None
        verdict = "MISSED" if failure is None else "found"
        print(f"{verdict} {number} {mutation.path}, {time.monotonic() - start:.0f} s: {failure}", flush=True)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
