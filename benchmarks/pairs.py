"""Time arms against a baseline in interleaved pairs, and report medians of ratios with intervals.

An arm is one of the compared models or commands: an object with ``name``, ``flags``, optional ``facts``, and ``step()``, which does
the work once and returns its seconds.
The first arm is the baseline. Every other arm is timed in pairs with it. The order alternates, so that a drift of the machine
affects both equally. Arms with runs of minutes take turns instead, all of them in each round.
"""

import argparse
import json
import math
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import numpy as np
import torch

ROOT = Path(__file__).resolve().parent.parent


def time_pairs(baseline_step, arm_step, pairs):
    """Time ``pairs`` pairs of steps. Return two lists of seconds. Odd pairs run the arm first."""
    baseline, arm = [], []
    for pair in range(pairs):
        order = [(baseline_step, baseline), (arm_step, arm)]
        for step, seconds in order if pair % 2 == 0 else reversed(order):
            seconds.append(step())
    return baseline, arm


def compare(baseline, arm, resamples=10_000):
    """Median of the ratios arm / baseline of all pairs, and its 95 % interval.

    The interval is a percentile bootstrap of the median with ``resamples`` draws of pairs with replacement.
    """
    ratios = np.divide(arm, baseline)
    draws = np.random.default_rng(1).integers(len(ratios), size=(resamples, len(ratios)))
    low, high = np.percentile(np.median(ratios[draws], axis=1), [2.5, 97.5])
    return {"ratio": float(np.median(ratios)), "low": float(low), "high": float(high), "ratios": ratios.tolist()}


@dataclass
class Absent:
    """Placeholder for an arm that cannot be timed, with the reason."""

    name: str
    flags: str
    reason: str


def measure(arms, pairs, warm_up):
    """Time all arms. Return a result for each: name, flags, ``facts``, median seconds and the output of ``compare``.

    ``arms`` may be a generator, because only the baseline is kept. For an ``Absent`` arm, an arm that runs out of memory, or an
    absent baseline, the result has ``absent``, the reason, instead.
    """
    arms = iter(arms)
    baseline, seconds_of_baseline = next(arms), []
    results = [_or_absent(baseline, lambda: _warm_up(baseline, warm_up))]

    def timed(arm):
        _warm_up(arm, warm_up)
        ours, theirs = time_pairs(baseline.step, arm.step, pairs)
        seconds_of_baseline.extend(ours)
        return _result(arm, theirs) | compare(ours, theirs)

    for arm in arms:
        if results[0] and not isinstance(arm, Absent):
            arm = Absent(arm.name, arm.flags, "its baseline is absent")
        results.append(_or_absent(arm, lambda: timed(arm)))  # noqa: B023  (called at once)
        print(f"{arm.name}: {results[-1].get('absent') or format(results[-1]['ratio'], '.3f')}", file=sys.stderr)
        arm = None  # free it before the next one is created
    results[0] = results[0] or _result(baseline, seconds_of_baseline or [baseline.step()])
    return results


def _or_absent(arm, find):
    """Return ``find()``, or the result of an absent arm if it runs out of memory."""
    if not isinstance(arm, Absent):
        try:
            return find()
        except RuntimeError as error:
            arm = absent(arm.name, arm.flags, error)
    return {"arm": arm.name, "flags": arm.flags, "absent": arm.reason}


# Messages of torch on a CPU, of a CUDA call outside torch's allocator, and of cuBLAS and cuDNN.
_TOO_LITTLE = ("can't allocate memory", "CUDA error: out of memory", "STATUS_ALLOC_FAILED")


def absent(name, flags, error):
    """Return an ``Absent`` arm for torch's out-of-memory error; raise any other error again."""
    if not isinstance(error, torch.OutOfMemoryError) and not any(text in str(error) for text in _TOO_LITTLE):
        raise error
    # Keep the first two sentences; advice follows. On a CPU, a place in torch's source code precedes them.
    first_line = str(error).partition("\n")[0]
    message = ". ".join(first_line.rpartition("] ")[2].removeprefix("err == 0. ").split(". ")[:2])
    return Absent(name, flags, f"too little memory: {message}")


def measure_in_rounds(arms, rounds, warm_up, after_round):
    """Variant of ``measure`` for slow arms that can all be kept: each arm runs once in every round.

    Every other round has the reverse order. ``after_round(results, done)`` is called after each round, so that partial results
    can be saved.
    """
    arms = list(arms)
    for arm in arms:
        _warm_up(arm, warm_up)
    seconds, results = {arm: [] for arm in arms}, []
    for done in range(1, rounds + 1):
        for arm in arms if done % 2 else reversed(arms):
            seconds[arm].append(arm.step())
            print(f"round {done} of {rounds}: {arm.name}: {seconds[arm][-1]:.1f} s", file=sys.stderr)
        baseline, *others = arms
        results = [_result(baseline, seconds[baseline])]
        results += [_result(arm, seconds[arm]) | compare(seconds[baseline], seconds[arm]) for arm in others]
        after_round(results, done)
    return results


def _warm_up(arm, steps):
    for _ in range(steps):
        arm.step()


def _result(arm, seconds):
    return {"arm": arm.name, "flags": arm.flags, **getattr(arm, "facts", {}), "seconds": statistics.median(seconds)}


def surroundings(device, pairs):
    """Facts of machine and software for the table: commit, versions, threads, device."""
    return {
        "commit": commit(),
        "torch": torch.__version__,
        "fairseq": fairseq_version(),
        "python": platform.python_version(),
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
        "device": torch.cuda.get_device_name() if device == "cuda" else processor(),
        "cuda": torch.version.cuda if device == "cuda" else None,
        "pairs": pairs,
    }


def commit():
    """Commit of the clone, with ``-dirty`` after changes. Without git, the value of the variable COMMIT."""
    try:
        git = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
        found = git.stdout.strip()
    except OSError:  # not installed
        found = ""
    return found or os.environ.get("COMMIT") or "unknown"


def fairseq_version():
    """Name and version of the package that provides the module fairseq."""
    packages = sorted(set(metadata.packages_distributions().get("fairseq", [])) - {"fairseq_reservoir"})
    return ", ".join(f"{name} {metadata.version(name)}" for name in packages) or "unknown"


def processor():
    """Name of the CPU from /proc/cpuinfo, or "cpu"."""
    try:
        names = re.findall(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        names = []
    return f"{names[0] if names else 'cpu'} ({platform.machine()})"


def processor_features():
    """Relevant instruction sets of the CPU, by their names in /proc/cpuinfo."""
    try:
        found = re.search(
            r"^(?:flags|Features)\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE
        )
    except OSError:
        found = None
    named = (
        set(found[1].split()) & {"avx2", "avx512f", "avx512_bf16", "amx_bf16", "asimd", "sve", "bf16"} if found else ()
    )
    return ", ".join(sorted(named)) or "unknown"


def table(results, columns=()):
    """Lines of the table. ``columns`` has (heading, key of a result, format) of the columns after ratio and interval.

    The row of an absent arm has the reason.
    """
    lines = ["| " + " | ".join(["arm", "ratio", "95 % interval", *(heading for heading, _, _ in columns)]) + " |"]
    lines.append("|---" * (3 + len(columns)) + "|")
    for found in results:
        if "absent" in found:
            lines.append(
                " | ".join([f"| {found['arm']}", found["absent"].replace("|", "/"), *[""] * (1 + len(columns))]) + " |"
            )
            continue
        ratio = (
            f"{found['ratio']:.3f} | {found['low']:.3f} to {found['high']:.3f}" if "ratio" in found else "1 | baseline"
        )
        cells = [found["arm"], ratio, *(format(found[key], style) for _, key, style in columns)]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def how_measured(facts):
    """Text under a table: method, commit, versions and machine."""
    return (
        "A ratio is the time of an arm (a row) divided by the time of the baseline, the first arm. "
        f"The table has the median over {facts['pairs']} interleaved pairs, with a percentile bootstrap interval.\n"
        f"Measured at commit {facts['commit']} with torch {facts['torch']}, {facts['fairseq']} and Python {facts['python']}, "
        f"on {facts['device']} with {facts['threads']} of {facts['cores']} CPU threads."
    )


def check_promise(results, name, at_most):
    """Check that the lower end of an arm's interval is at most ``at_most``. An absent arm fails."""
    promised = next(found for found in results[1:] if found["arm"] == name)
    return {"arm": name, "at_most": at_most, "holds": promised.get("low", math.inf) <= at_most}


def markdown(result, columns, how):
    """Table of a result's ``arms``, followed by its ``surroundings``, ``how``, the flags of each arm and the promise."""
    lines = [*table(result["arms"], columns), "", how_measured(result["surroundings"]), how]
    lines += ["", *(f"    {arm['arm']}: {arm['flags']}" for arm in result["arms"] if arm["flags"])]
    if promise := result.get("promise"):
        met = "met" if promise["holds"] else "not met"
        goal = f"the lower end of the interval of `{promise['arm']}` is at most {promise['at_most']}"
        lines += ["", f"The goal, set before the measurement, was that {goal}. It is {met}."]
    return "\n".join(lines) + "\n"


def write(prefix, result, text, show=True):
    """Write the result to ``prefix``.json and the text to ``prefix``.md. If ``show``, also print the text."""
    prefix.parent.mkdir(parents=True, exist_ok=True)
    Path(f"{prefix}.json").write_text(json.dumps(result, indent=1) + "\n")
    Path(f"{prefix}.md").write_text(text)
    if show:
        print(text, end="")


def name_and_flags(text):
    """Parse ``"T: --arch ..."`` to ``("T", "--arch ...")``."""
    name, _, flags = map(str.strip, text.partition(":"))
    if not name or not flags:
        raise argparse.ArgumentTypeError(
            f"{text!r}: write a name, a colon and flags of fairseq-train, as in 'T: --arch ...'"
        )
    return name, flags


def add_arguments(parser, output, pairs):
    """Add the arguments of benchmarks that time pairs."""
    parser.add_argument("--pairs", type=int, default=pairs, help=f"pairs of steps per arm (default {pairs})")
    add_run(parser, output, warm_up=3)


def add_run(parser, output, warm_up):
    """Add the arguments of all benchmarks."""
    parser.add_argument("--warm-up", type=int, default=warm_up, help=f"untimed steps per arm (default {warm_up})")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--threads", type=int, help="threads of torch (default: torch's own choice)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--output", type=Path, default=Path("runs") / output, help="prefix of the .json and the .md file"
    )


def clock_of(given):
    """Return the clock of ``--cpu-time``: seconds of this process on all its cores, or else of the world."""
    return time.process_time if getattr(given, "cpu_time", False) else time.perf_counter


def about_clock(given):
    """Sentence about the clock for below the table; empty for the usual one."""
    return " Times are CPU seconds." if getattr(given, "cpu_time", False) else ""


def add_arms(parser, at_most):
    """Add the arguments of benchmarks that compare architectures with the first one."""
    add_models(parser, "repeat; the first is the baseline")
    parser.add_argument(
        "--cpu-time", action="store_true", help="measure the processor's seconds, which other processes lengthen less"
    )
    parser.add_argument(
        "--promise", metavar="NAME", help="fail unless the lower end of this arm's interval is at most --at-most"
    )
    parser.add_argument("--at-most", type=float, default=at_most, help=f"default {at_most}")


def add_models(parser, repeat="repeat"):
    """Add the arguments of benchmarks of architectures: arms and batch sizes."""
    parser.add_argument("--arm", action="append", type=name_and_flags, metavar='"NAME: FLAGS"', help=repeat)
    add_shape(parser)


def add_shape(parser):
    """Add the arguments for the size of batches."""
    parser.add_argument("--length", type=int, default=20, help="tokens per sentence (default 20)")
    parser.add_argument("--words", type=int, default=6000, help="size of the joint dictionary (default 6000)")


def check_arms(parser, given, positive):
    """Refuse numbers below 1, a single arm, and a promise for an unknown arm."""
    check_positive(parser, given, positive)
    if len(given.arm) < 2:
        parser.error("--arm: give two or more, the baseline first")
    others = [name for name, _ in given.arm[1:]]
    if given.promise not in (None, *others):
        parser.error(f"--promise {given.promise}: choose from {', '.join(others)}")


def check_positive(parser, given, names):
    """Refuse numbers below 1."""
    for name in names:
        if getattr(given, name) < 1:
            parser.error(f"--{name.replace('_', '-')} {getattr(given, name)}: at least 1")
