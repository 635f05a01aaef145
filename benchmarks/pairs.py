"""Times arms against a baseline in interleaved pairs; medians of ratios, their intervals, the table.

An arm is an object with ``name``, ``flags`` and ``step()``, which does the work once and returns its seconds; it may
have ``facts``. The first arm is the baseline; every other arm is timed in pairs with it, now the one first and now the
other, so that a drift of the machine meets both alike. Arms whose runs take minutes take turns instead, all in each round.
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
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import numpy as np
import torch

ROOT = Path(__file__).resolve().parent.parent


def time_pairs(baseline_step, arm_step, pairs):
    """Seconds of ``pairs`` pairs of steps as two lists; odd pairs run the arm first."""
    baseline, arm = [], []
    for pair in range(pairs):
        order = [(baseline_step, baseline), (arm_step, arm)]
        for step, seconds in order if pair % 2 == 0 else reversed(order):
            seconds.append(step())
    return baseline, arm


def compare(baseline, arm, resamples=10_000):
    """Median of the ratios pair by pair, and its 95 % interval.

    The interval is the percentile bootstrap of the median: pairs are drawn with replacement, ``resamples`` times.
    """
    ratios = np.divide(arm, baseline)
    draws = np.random.default_rng(1).integers(len(ratios), size=(resamples, len(ratios)))
    low, high = np.percentile(np.median(ratios[draws], axis=1), [2.5, 97.5])
    return {"ratio": float(np.median(ratios)), "low": float(low), "high": float(high), "ratios": ratios.tolist()}


@dataclass
class Absent:
    """In place of an arm that cannot be timed: its name, its flags and the reason."""

    name: str
    flags: str
    reason: str


def measure(arms, pairs, warm_up):
    """One result per arm, the baseline's first: its name, its flags, its ``facts``, its median seconds and what ``compare`` says.

    ``arms`` may make them one at a time, as none but the baseline is kept. An arm that is ``Absent``, or for which there turns out to be
    too little memory, has in their place ``absent``, the reason; so has every arm whose baseline is absent.
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
        arm = None  # gone before the next one is made
    results[0] = results[0] or _result(baseline, seconds_of_baseline or [baseline.step()])
    return results


def _or_absent(arm, find):
    """What ``find()`` says, or that the arm is absent and why."""
    if not isinstance(arm, Absent):
        try:
            return find()
        except RuntimeError as error:
            arm = absent(arm.name, arm.flags, error)
    return {"arm": arm.name, "flags": arm.flags, "absent": arm.reason}


# torch's words on a CPU; of a CUDA call outside its allocator; of cuBLAS and cuDNN for what they take themselves.
_TOO_LITTLE = ("can't allocate memory", "CUDA error: out of memory", "STATUS_ALLOC_FAILED")


def absent(name, flags, error):
    """In place of an arm that ended with this error of torch's for want of memory; any other error is raised again."""
    if not isinstance(error, torch.OutOfMemoryError) and not any(words in str(error) for words in _TOO_LITTLE):
        raise error
    # Two sentences: what, and how much; torch goes on with advice. On a CPU they come after the place in its source.
    first_line = str(error).partition("\n")[0]
    said = ". ".join(first_line.rpartition("] ")[2].removeprefix("err == 0. ").split(". ")[:2])
    return Absent(name, flags, f"too little memory: {said}")


def measure_in_rounds(arms, rounds, warm_up, after_round):
    """As ``measure``, for arms that are cheap to keep and slow to run: each, the baseline too, runs once a round.

    Rounds alternate between the order given and its reverse. ``after_round(results, done)`` is called after each, so that what
    has been measured can be kept when the rest never is.
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
    """What the figures depend on besides the arms."""
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
    """Of the files, with ``-dirty`` if some were changed; where git knows none, what the variable COMMIT says."""
    try:
        git = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
        found = git.stdout.strip()
    except OSError:  # not installed
        found = ""
    return found or os.environ.get("COMMIT") or "unknown"


def fairseq_version():
    """Of the package that brought the module fairseq."""
    packages = sorted(set(metadata.packages_distributions().get("fairseq", [])) - {"fairseq_reservoir"})
    return ", ".join(f"{name} {metadata.version(name)}" for name in packages) or "unknown"


def processor():
    """The CPU's name, where Linux tells it."""
    try:
        names = re.findall(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        names = []
    return f"{names[0] if names else 'cpu'} ({platform.machine()})"


def processor_features():
    """Which of the instruction sets that matter here the CPU has, as Linux calls them."""
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
    """Lines of the table; ``columns``: (heading, key of a result, format) of those after the ratio and its interval.

    A result with ``absent`` has been timed by nobody: its row says why.
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
    """The sentence under a table."""
    return (
        f"Medians of the ratios of {facts['pairs']} interleaved pairs; interval: percentile bootstrap of the median over pairs. "
        f"Commit {facts['commit']}, torch {facts['torch']}, {facts['fairseq']}, Python {facts['python']}, "
        f"{facts['device']}, {facts['threads']} of {facts['cores']} threads."
    )


def check_promise(results, name, at_most):
    """Whether the interval of an arm includes a ratio of ``at_most`` or less; one that is absent keeps no promise."""
    promised = next(found for found in results[1:] if found["arm"] == name)
    return {"arm": name, "at_most": at_most, "holds": promised.get("low", math.inf) <= at_most}


def markdown(result, columns, how):
    """The table of a result's ``arms``, and below: its ``surroundings``, ``how``, every arm's flags, the promise."""
    lines = [*table(result["arms"], columns), "", how_measured(result["surroundings"]), how]
    lines += ["", *(f"    {arm['arm']}: {arm['flags']}" for arm in result["arms"] if arm["flags"])]
    if promise := result.get("promise"):
        holds = "holds" if promise["holds"] else "does not hold"
        lines += ["", f"Promise: the interval of {promise['arm']} includes a value <= {promise['at_most']}: {holds}."]
    return "\n".join(lines) + "\n"


def write(prefix, result, text, show=True):
    """The figures as ``prefix``.json, the text as ``prefix``.md and, unless told not to, on the screen."""
    prefix.parent.mkdir(parents=True, exist_ok=True)
    Path(f"{prefix}.json").write_text(json.dumps(result, indent=1) + "\n")
    Path(f"{prefix}.md").write_text(text)
    if show:
        print(text, end="")


def name_and_flags(text):
    """``"T: --arch ..."`` -> ``("T", "--arch ...")``."""
    name, _, flags = map(str.strip, text.partition(":"))
    if not name or not flags:
        raise argparse.ArgumentTypeError(
            f"{text!r}: write a name, a colon and flags of fairseq-train, as in 'T: --arch ...'"
        )
    return name, flags


def add_arguments(parser, output, pairs):
    """The arguments of benchmarks that time pairs."""
    parser.add_argument("--pairs", type=int, default=pairs, help=f"pairs of steps per arm (default {pairs})")
    add_run(parser, output, warm_up=3)


def add_run(parser, output, warm_up):
    """The arguments that all benchmarks have."""
    parser.add_argument("--warm-up", type=int, default=warm_up, help=f"untimed steps per arm (default {warm_up})")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--threads", type=int, help="threads of torch (default: torch's own choice)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--output", type=Path, default=Path("runs") / output, help="prefix of the .json and the .md file"
    )


def add_arms(parser, at_most):
    """The arguments of benchmarks that compare architectures with the first of them."""
    add_models(parser, "repeat; the first is the baseline")
    parser.add_argument("--promise", metavar="NAME", help="fail unless the interval of this arm includes --at-most")
    parser.add_argument("--at-most", type=float, default=at_most, help=f"default {at_most}")


def add_models(parser, repeat="repeat"):
    """The arguments of benchmarks of architectures: which, and what their batches are."""
    parser.add_argument("--arm", action="append", type=name_and_flags, metavar='"NAME: FLAGS"', help=repeat)
    add_shape(parser)


def add_shape(parser):
    """The arguments that say what batches are."""
    parser.add_argument("--length", type=int, default=20, help="tokens of a sentence (default 20)")
    parser.add_argument("--words", type=int, default=6000, help="words of the joint dictionary (default 6000)")


def check_arms(parser, given, positive):
    """Refuses numbers below 1, a single arm, and a promise about no arm."""
    check_positive(parser, given, positive)
    if len(given.arm) < 2:
        parser.error("--arm: give two or more, the baseline first")
    others = [name for name, _ in given.arm[1:]]
    if given.promise not in (None, *others):
        parser.error(f"--promise {given.promise}: choose from {', '.join(others)}")


def check_positive(parser, given, names):
    """Refuses numbers below 1."""
    for name in names:
        if getattr(given, name) < 1:
            parser.error(f"--{name.replace('_', '-')} {getattr(given, name)}: at least 1")
