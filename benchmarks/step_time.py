"""Seconds of one training step, arm against arm, in one process and in interleaved pairs.

A step is fairseq's own ``Trainer.train_step``: forward, loss, backward, clipping, optimizer. Every arm is built as
``fairseq-train`` builds it and gets the same batch of random words. See ``pairs`` for how arms are compared.

  python benchmarks/step_time.py
  python benchmarks/step_time.py --pairs 10 --length 40 --arm "three: --arch transformer --encoder-layers 3" --arm ...

The first, untimed step of an arm counts its matrix-product FLOPs (attention on the math backend), backward included.
"""

import argparse
import sys
import time
from pathlib import Path

import torch
from fairseq.trainer import Trainer
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks import models, pairs  # noqa: E402
from benchmarks.sorted_masks import sort_at_every_use  # noqa: E402

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
COLUMNS = (
    ("ratio of FLOPs", "flop_ratio", ".3f"),
    ("seconds per step", "seconds", ".4f"),
    ("parameters", "parameters", ","),
    ("trained", "trained", ","),
)


class Arm:
    """One model with its trainer and its batch.

    Args:
        name: what the table calls it.
        flags: flags of fairseq-train; they win over ``models.COMMON``.
        shape: options of the command line: words, length, max_tokens, seed, device.
        prepare: a function that changes the model before its trainer is made.
    """

    def __init__(self, name, flags, shape, prepare=None):
        self.name, self.flags = name, flags
        cfg, task, model = models.build(flags, shape)
        if prepare:
            prepare(model)
        self.trainer = Trainer(cfg, task, model, task.build_criterion(cfg.criterion))
        self.batch = models.random_batch(task.source_dictionary, shape)
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


def build_arms(given):
    """The arms, and after each one of ``--sorted`` another that sorts its scores in every forward pass."""
    arms = []
    for name, flags in given.arm:
        arms.append(Arm(name, flags, given))
        if name in given.sorted:
            arms.append(Arm(f"{name}, a sort in every forward", flags, given, prepare=sort_at_every_use))
    return arms


def read_arguments(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    pairs.add_arguments(parser, "step_time", pairs=40)
    pairs.add_arms(parser, at_most=PROMISED_RATIO)
    parser.add_argument(
        "--sorted", action="append", default=[], metavar="NAME",
        help="time this arm, a supermask model, also with a sort of all scores in every forward, as the paper's code has it",
    )  # fmt: skip
    parser.add_argument("--max-tokens", type=int, default=4096, help="tokens of a batch on either side (default 4096)")
    given = parser.parse_args(arguments)
    if given.arm is None:
        given.arm, given.promise = list(map(pairs.name_and_flags, DEFAULT_ARMS)), given.promise or "only L"
    pairs.check_arms(parser, given, ("pairs", "length", "max_tokens", "words"))
    for name in given.sorted:
        if "--arch supermask" not in dict(given.arm).get(name, ""):
            parser.error(f"--sorted {name}: no arm of that name is a supermask model")
    return given


def main(arguments=None):
    given = read_arguments(arguments)
    models.import_plugin(given.threads)
    arms = build_arms(given)
    found = pairs.measure(arms, given.pairs, given.warm_up)
    for arm, entry in zip(arms, found):
        entry |= {"parameters": arm.parameters, "trained": arm.trained, "flops": arm.flops}
        entry["flop_ratio"] = arm.flops / arms[0].flops
    batch = f"{models.sentences_of(given)} sentences of {given.length} tokens on either side"
    facts = pairs.surroundings(given.device, given.pairs) | {"batch": batch, "words": given.words, "common_flags": models.COMMON}
    result = {"surroundings": facts, "arms": found}
    if given.promise:
        result["promise"] = pairs.check_promise(found, given.promise, given.at_most)
    how = f"FLOPs: matrix products of forward and backward. Batch: {batch}, {given.words:,} words."
    pairs.write(given.output, result, pairs.markdown(result, COLUMNS, how))
    return result


if __name__ == "__main__":
    result = main()
    sys.exit(0 if result.get("promise", {"holds": True})["holds"] else 1)
