"""``python -m tests.support.fake_cuda``: table of the host's reads per update, ours and fairseq's.

``--group NAME`` selects a group of ``cases``. ``--json FILE`` writes all results, for a test.
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
        # These import torch, which must not be imported earlier.
        from .compare import HEAD, found, row

        results = []
        print(HEAD)
        for result in found(Path(folder) / "data", given.group, given.only, given.exact):
            results.append(result | {"row": row(result)})
            print(row(result), *(f"  {problem}" for problem in result["problems"]), sep="\n", flush=True)
    if given.json:
        given.json.write_text(json.dumps(results))


main()
