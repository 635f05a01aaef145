"""The folder that benchmarks/gpu.sh leaves: what it was run on, and one page of all that was measured.

gpu_results.py begin FOLDER cpu|cuda [tiny]   writes device.json; refuses a device that is not there, and another one than FOLDER is of
gpu_results.py page FOLDER                    writes results.md from what is there; needs no torch
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
    """Writes what the figures depend on.

    Raises:
        SystemExit: no CUDA, or figures of another commit, device or torch are there.
    """
    import torch

    if device == "cuda" and not torch.cuda.is_available():
        sys.exit(
            f"gpu: --device cuda: torch {torch.__version__} sees no CUDA device; --device cpu --tiny tries the commands"
        )
    sys.path.insert(0, str(ROOT))
    from benchmarks import pairs

    facts = pairs.surroundings(device, pairs=None) | {"driver": driver() if device == "cuda" else None}
    if device == "cuda":
        facts["memory"] = f"{torch.cuda.get_device_properties(0).total_memory / 2**30:.1f} GiB"
    facts["run"] = "tiny: to see that everything runs, no figure is a measurement" if size == "tiny" else "whole"
    facts |= {"date": datetime.now(UTC).isoformat(timespec="minutes")}
    file = folder / "device.json"
    if file.exists():
        earlier = json.loads(file.read_text())
        for name in SAME:
            if earlier[name] != facts[name]:
                sys.exit(
                    f"gpu: OUT={folder}: its figures are of {name} {earlier[name]}, and this is {facts[name]}; name another folder"
                )
    else:
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(facts, indent=1) + "\n")


def driver():
    """The version of NVIDIA's driver."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True).stdout.split("\n")[0] or "unknown"
    except OSError:
        return "unknown"


def page(folder):
    """Markdown: what it was run on, how each step ended, the tests' last line, the tables, BLEU of each arm."""
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
    """(name, how it ended) of each step, in their order."""
    lines = (folder / "steps").read_text().splitlines() if (folder / "steps").exists() else []
    return dict(line.split("\t", 1) for line in lines).items()


def scores(folder):
    """BLEU of each arm: mean and standard deviation over its seeds."""
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
