"""Print the cosine between estimated and true gradients over a run: python cosines.py TRAIN_LOG, a log of ``--log-format json``."""

import json
import re
import sys

_KEY = "backskip_cosine_"


def cosines(lines) -> dict[str, dict[int, float]]:
    """Layer -> update -> cosine, from the records of a log. If an update has two values, the later one counts."""
    found = {}
    for line in lines:
        record = re.search(r"\{.*\}\s*$", line)
        if record is None or _KEY not in line:
            continue
        values = json.loads(record[0])
        if "num_updates" not in values:
            continue
        for key, value in values.items():
            if key.startswith(_KEY) and value is not None:  # null if no update since the last record has both gradients
                found.setdefault(key.removeprefix(_KEY), {})[int(values["num_updates"])] = float(value)
    return found


def table(found) -> str:
    """One row per logged update, one column per layer."""
    layers = sorted(found)
    rows = [["update", *layers]]
    for update in sorted({update for values in found.values() for update in values}):
        rows.append(
            [str(update), *(f"{found[layer][update]:.3f}" if update in found[layer] else "" for layer in layers)]
        )
    widths = [max(map(len, column)) for column in zip(*rows)]
    return "\n".join("  ".join(cell.rjust(width) for cell, width in zip(row, widths)) for row in rows)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python cosines.py TRAIN_LOG")
    with open(sys.argv[1]) as log:
        result = cosines(log)
    if not result:
        sys.exit(f"cosines: {sys.argv[1]}: no {_KEY}... in it; train with --backskip and --log-format json")
    print(table(result))
