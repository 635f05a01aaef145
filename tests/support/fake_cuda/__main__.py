"""``python -m tests.support.fake_cuda``: reads by the host in each update, ours beside fairseq's, as a table.

With ``--group NAME`` only a group of ``cases``, with ``--json FILE`` all that was found, for a test.
"""

import argparse
import json
import logging
import tempfile
import warnings
from pathlib import Path

from . import library


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.support.fake_cuda", description="Counts reads by the host.")
    parser.add_argument("--group", action="append", default=[], help="only this one; repeat")
    parser.add_argument("--only", default="", help="only cases whose name has this in it")
    parser.add_argument(
        "--exact", action="store_true", help="compare deep models with fairseq's as deep, seen and not calculated"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write all that was found")
    parser.add_argument("--library", type=Path, metavar="FOLDER", help="where the compiled device is kept")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        library.load(library.compiled(given.library or Path(folder)))
        logging.disable(logging.WARNING)
        warnings.simplefilter("ignore")
        # torch is imported by these, and must not be before.
        from .compare import HEAD, found, row

        results = []
        print(HEAD)
        for result in found(Path(folder) / "data", given.group, given.only, given.exact):
            results.append(result | {"row": row(result)})
            print(row(result), *(f"  {problem}" for problem in result["problems"]), sep="\n", flush=True)
    if given.json:
        given.json.write_text(json.dumps(results))


main()
