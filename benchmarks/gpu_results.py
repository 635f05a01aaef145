"""Results folder of benchmarks/gpu.sh: description of the machine, and a page with all results.

gpu_results.py begin FOLDER cpu|cuda [tiny]   writes device.json; fails without the device, or if FOLDER has results of another one
gpu_results.py page FOLDER                    writes results.md from the files in FOLDER; does not need torch
"""

import json
import statistics
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SAME = ("commit", "device", "driver", "torch", "run")


def begin(folder, device, size=""):
    """Write device.json: commit, device and versions.

    Raises:
        SystemExit: there is no CUDA device, or the folder has results of another commit, device, driver or torch.
    """
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        sys.exit(
            f"gpu: --device cuda: torch {torch.__version__} finds no CUDA device; use --device cpu --tiny to try the commands"
        )
    sys.path.insert(0, str(ROOT))
    from benchmarks import pairs

    facts = pairs.surroundings(device, pairs=None) | {"driver": driver() if device == "cuda" else None}
    if device == "cuda":
        facts["memory"] = f"{torch.cuda.get_device_properties(0).total_memory / 2**30:.1f} GiB"
    facts["run"] = "tiny: a trial run, its numbers are not measurements" if size == "tiny" else "whole"
    facts |= {"date": datetime.now(UTC).isoformat(timespec="minutes")}
    file = folder / "device.json"
    if file.exists():
        earlier = json.loads(file.read_text())
        for name in SAME:
            if earlier[name] != facts[name]:
                sys.exit(
                    f"gpu: OUT={folder}: has results of {name} {earlier[name]}, not {facts[name]}; choose another folder"
                )
    else:
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(facts, indent=1) + "\n")


def driver():
    """Version of NVIDIA's driver."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True).stdout.split("\n")[0] or "unknown"
    except OSError:
        return "unknown"


def page(folder):
    """Write results.md: machine, status of each step, last lines of the tests, tables, and BLEU of each arm."""
    facts = json.loads((folder / "device.json").read_text())
    lines = ["# " + facts["device"], ""]
    lines += [f"- {name}: {value}" for name, value in facts.items() if value is not None and name != "device"]
    lines += ["", "| step | |", "|---|---|"]
    lines += [f"| {name} | {state.replace('|', '/')} |" for name, state in states(folder)]
    for file in sorted(folder.glob("tests*.txt*")):
        lines += ["", "## Tests", "", *(f"    {line}" for line in file.read_text().splitlines()[-12:])]
    for file in sorted(folder.glob("*/table.md")):
        lines += ["", f"## {file.parent.name}", "", file.read_text().rstrip()]
    lines += scores(folder)
    (folder / "results.md").write_text("\n".join(lines) + "\n")


def states(folder):
    """Pairs (name, status) of the steps, in order."""
    lines = (folder / "steps").read_text().splitlines() if (folder / "steps").exists() else []
    return dict(line.split("\t", 1) for line in lines).items()


def scores(folder):
    """Table of BLEU: mean and standard deviation of each arm over its seeds."""
    arms = {}
    for file in sorted(folder.glob("house/*/bleu.json")):
        arm, _, seed = file.parent.name.rpartition("-")
        arms.setdefault(arm, {})[seed] = json.loads(file.read_text())["score"]
    if not arms:
        return []
    lines = ["", "## House benchmark: Multi30k English-German, 256/1024, 4 + 2 layers", ""]
    lines += ["| arm | BLEU | standard deviation | seeds |", "|---|---|---|---|"]
    for arm, found in arms.items():
        spread = f"{statistics.stdev(found.values()):.2f}" if len(found) > 1 else "one seed"
        seeds = ", ".join(f"{seed}: {score:.2f}" for seed, score in sorted(found.items()))
        lines.append(f"| {arm} | {statistics.mean(found.values()):.2f} | {spread} | {seeds} |")
    return lines


if __name__ == "__main__":
    {"begin": begin, "page": page}[sys.argv[1]](Path(sys.argv[2]), *sys.argv[3:])
