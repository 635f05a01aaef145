"""Seconds of one training step, arm against arm, in one process and in interleaved pairs.

A step is fairseq's own ``Trainer.train_step``: forward, loss, backward, clipping, optimizer. Every arm is built as
``fairseq-train`` builds it and gets the same batch of random words. The first arm is the baseline; every other arm is
timed in pairs with it, now the one first and now the other, so that a drift of the machine meets both alike.

  python benchmarks/step_time.py
  python benchmarks/step_time.py --pairs 10 --length 40 --arm "three: --arch transformer --encoder-layers 3" --arm ...

The first, untimed step of an arm counts its matrix-product FLOPs (attention on the math backend), backward included.
"""

import argparse
import json
import logging
import os
import platform
import shlex
import statistics
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from fairseq import benchmark, options, tasks, utils  # noqa: F401  (benchmark registers the task dummy_mt)
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.trainer import Trainer
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

ROOT = Path(__file__).resolve().parent.parent
PROMISED_RATIO = 1.01
STUDY = "--arch reservoir_transformer_study --reservoir-decoder LL --reservoir-encoder"
DEFAULT_ARMS = (
    "plain: --arch transformer --encoder-embed-dim 128 --encoder-ffn-embed-dim 512 --encoder-layers 3 --decoder-layers 2"
    " --encoder-attention-heads 4 --decoder-attention-heads 4",
    f"only L: {STUDY} LLL",
    f"five L: {STUDY} LLLLL",
    f"T: {STUDY} LTLTL",
    f"F: {STUDY} LFLFL",
    f"f: {STUDY} LfLfL",
)
COMMON = (
    "--task dummy_mt --criterion label_smoothed_cross_entropy --label-smoothing 0.1 --share-all-embeddings --dropout 0.1"
    " --optimizer adam --lr 1e-3 --lr-scheduler inverse_sqrt --warmup-updates 800 --clip-norm 1.0"
)


class Arm:
    """One model with its trainer and its batch.

    Args:
        name: what the table calls it.
        flags: flags of fairseq-train; they win over ``COMMON``.
        shape: options of the command line: words, length, max_tokens, seed, device.
    """

    def __init__(self, name, flags, shape):
        self.name, self.flags = name, flags
        sizes = f"--dict-size {shape.words} --src-len {shape.length} --tgt-len {shape.length} --max-tokens {shape.max_tokens}"
        words = shlex.split(f"{COMMON} {sizes} --seed {shape.seed} {'--cpu' if shape.device == 'cpu' else ''} {self.flags}")
        cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), words))
        utils.set_torch_seed(cfg.common.seed)
        task = tasks.setup_task(cfg.task)
        self.trainer = Trainer(cfg, task, task.build_model(cfg.model), task.build_criterion(cfg.criterion))
        self.batch = random_batch(task.source_dictionary, shape)
        self.parameters = sum(p.numel() for p in self.trainer.model.parameters())
        self.trained = sum(p.numel() for p in self.trainer.model.parameters() if p.requires_grad)
        with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
            self.step()
        self.flops = counter.get_total_flops()

    def step(self):
        """Trains one update and returns its seconds."""
        started = time.perf_counter()
        self.trainer.train_step([self.batch])
        if self.trainer.cuda:
            torch.cuda.synchronize()
        return time.perf_counter() - started


def random_batch(dictionary, shape):
    """As many sentences of ``length`` random words as fit into ``max_tokens``, as fairseq's collater gives them."""
    sentences, generator = max(1, shape.max_tokens // shape.length), torch.Generator().manual_seed(shape.seed)
    source, target = torch.randint(dictionary.nspecial, len(dictionary), (2, sentences, shape.length), generator=generator)
    source[:, -1] = target[:, -1] = dictionary.eos()
    lengths = torch.full((sentences,), shape.length)
    net_input = {"src_tokens": source, "src_lengths": lengths, "prev_output_tokens": target.roll(1, dims=1)}
    return {"id": torch.arange(sentences), "net_input": net_input, "target": target,
            "nsentences": sentences, "ntokens": target.numel()}  # fmt: skip


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


def measure(arms, pairs, warm_up):
    """One result per arm, the baseline's first."""
    for arm in arms:
        for _ in range(warm_up):
            arm.step()
    baseline, seconds_of_baseline, results = arms[0], [], []
    for arm in arms[1:]:
        ours, theirs = time_pairs(baseline.step, arm.step, pairs)
        seconds_of_baseline += ours
        results.append(describe(arm, baseline, theirs) | compare(ours, theirs))
        print(f"{arm.name}: {results[-1]['ratio']:.3f}", file=sys.stderr)
    return [describe(baseline, baseline, seconds_of_baseline), *results]


def describe(arm, baseline, seconds):
    return {
        "arm": arm.name,
        "flags": arm.flags,
        "parameters": arm.parameters,
        "trained": arm.trained,
        "flops": arm.flops,
        "flop_ratio": arm.flops / baseline.flops,
        "seconds": statistics.median(seconds),
    }


def surroundings(shape):
    """What the figures depend on besides the arms."""
    git = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
    return {
        "commit": git.stdout.strip() or "unknown",
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "cores": os.cpu_count(),
        "device": torch.cuda.get_device_name() if shape.device == "cuda" else f"cpu ({platform.machine()})",
        "pairs": shape.pairs,
        "batch": f"{max(1, shape.max_tokens // shape.length)} sentences of {shape.length} tokens on either side",
        "words": shape.words,
        "common_flags": COMMON,
    }


def markdown(result):
    """The table, and under it how it was made."""
    facts = result["surroundings"]
    lines = [
        "| arm | ratio | 95 % interval | ratio of FLOPs | seconds per step | parameters | trained |",
        "|---|---|---|---|---|---|---|",
    ]
    for arm in result["arms"]:
        ratio = f"{arm['ratio']:.3f} | {arm['low']:.3f} to {arm['high']:.3f}" if "ratio" in arm else "1 | baseline"
        lines.append(
            f"| {arm['arm']} | {ratio} | {arm['flop_ratio']:.3f} | {arm['seconds']:.4f} "
            f"| {arm['parameters']:,} | {arm['trained']:,} |"
        )
    lines += [
        "",
        f"Medians of the ratios of {facts['pairs']} interleaved pairs; interval: percentile bootstrap of the median over pairs. "
        f"FLOPs: matrix products of forward and backward. Commit {facts['commit']}, torch {facts['torch']}, {facts['device']}, "
        f"{facts['threads']} of {facts['cores']} threads; {facts['batch']}, {facts['words']:,} words.",
        "",
        *(f"    {arm['arm']}: {arm['flags']}" for arm in result["arms"]),
    ]
    promise = result.get("promise")
    if promise:
        verdict = "holds" if promise["holds"] else "does not hold"
        lines += ["", f"Promise: the interval of {promise['arm']} includes a value <= {promise['at_most']}: {verdict}."]
    return "\n".join(lines) + "\n"


def name_and_flags(text):
    """``"T: --arch ..."`` -> ``("T", "--arch ...")``."""
    name, _, flags = map(str.strip, text.partition(":"))
    if not name or not flags:
        raise argparse.ArgumentTypeError(f"{text!r}: write a name, a colon and flags of fairseq-train, as in 'T: --arch ...'")
    return name, flags


def read_arguments(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--arm", action="append", type=name_and_flags, metavar='"NAME: FLAGS"', help="repeat; the first is the baseline")
    parser.add_argument("--promise", metavar="NAME", help=f"fail unless the interval of this arm includes <= {PROMISED_RATIO}")
    parser.add_argument("--pairs", type=int, default=40, help="pairs of steps per arm (default 40)")
    parser.add_argument("--warm-up", type=int, default=3, help="untimed steps per arm (default 3)")
    parser.add_argument("--max-tokens", type=int, default=4096, help="tokens of a batch on either side (default 4096)")
    parser.add_argument("--length", type=int, default=20, help="tokens of a sentence (default 20)")
    parser.add_argument("--words", type=int, default=6000, help="words of the joint dictionary (default 6000)")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--threads", type=int, help="threads of torch (default: torch's own choice)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, default=Path("runs/step_time"), help="prefix of the .json and the .md file")
    given = parser.parse_args(arguments)
    for name in ("pairs", "length", "max_tokens", "words"):
        if getattr(given, name) < 1:
            parser.error(f"--{name.replace('_', '-')} {getattr(given, name)}: at least 1")
    if given.arm is None:
        given.arm, given.promise = list(map(name_and_flags, DEFAULT_ARMS)), given.promise or "only L"
    if len(given.arm) < 2:
        parser.error("--arm: give two or more, the baseline first")
    others = [name for name, _ in given.arm[1:]]
    if given.promise not in (None, *others):
        parser.error(f"--promise {given.promise}: choose from {', '.join(others)}")
    return given


def main(arguments=None):
    given = read_arguments(arguments)
    warnings.filterwarnings("ignore")
    logging.disable(logging.INFO)
    utils.import_user_module(argparse.Namespace(user_dir=str(ROOT / "fairseq_reservoir")))
    if given.threads:
        torch.set_num_threads(given.threads)
    arms = [Arm(name, flags, given) for name, flags in given.arm]
    result = {"surroundings": surroundings(given), "arms": measure(arms, given.pairs, given.warm_up)}
    if given.promise:
        promised = next(arm for arm in result["arms"][1:] if arm["arm"] == given.promise)
        holds = promised["low"] <= PROMISED_RATIO
        result["promise"] = {"arm": given.promise, "at_most": PROMISED_RATIO, "holds": holds}
    given.output.parent.mkdir(parents=True, exist_ok=True)
    Path(f"{given.output}.json").write_text(json.dumps(result, indent=1) + "\n")
    Path(f"{given.output}.md").write_text(markdown(result))
    print(markdown(result), end="")
    return result


if __name__ == "__main__":
    result = main()
    sys.exit(0 if result.get("promise", {"holds": True})["holds"] else 1)
