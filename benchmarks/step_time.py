"""Time and peak memory of a training step, for several models in one process, in interleaved pairs.

A step is fairseq's ``Trainer.train_step``: forward, loss, backward, clipping, optimizer. Every model is built as in
``fairseq-train`` and gets the same batch of random tokens. ``pairs`` describes the comparison.

  python benchmarks/step_time.py
  python benchmarks/step_time.py --pairs 10 --length 40 --arm "three: --arch transformer --encoder-layers 3" --arm ...
  python benchmarks/step_time.py --length 512 --arm "bert: --arch reservoir_roberta_study" --arm "fnet: --arch reservoir_roberta_study
      --reservoir-encoder MMMM"
  python benchmarks/step_time.py --length 512 --arm "plain: --arch transformer_lm --decoder-normalize-before"
      --arm "T: --arch reservoir_transformer_lm --reservoir-decoder LLTLTL"

fairseq's transformer_lm keeps an input and an output width of 512. For another --decoder-embed-dim, give it the same --decoder-input-dim
and --decoder-output-dim.

Three untimed steps come first: two measure peak memory (see ``memory``), and one counts the FLOPs of matrix products, forward and
backward, with attention on the math backend.
"""

import argparse
import sys
from pathlib import Path

import torch
from fairseq.trainer import Trainer
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks import figure, memory, models, pairs  # noqa: E402
from benchmarks.sorted_masks import sort_at_every_use  # noqa: E402

PROMISED_RATIO = 1.01
MEMORY_STEPS = 2  # the second step includes the optimizer's state
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
    ("peak MiB", "peak_mib", ",.0f"),
    ("parameters", "parameters", ","),
    ("trained parameters", "trained", ","),
)


class Arm:
    """A model with its trainer and a batch.

    Args:
        name: name in the table.
        flags: flags of fairseq-train, which override ``models.common_of(flags)``.
        shape: options of the command line: words, length, max_tokens, seed, device.
        prepare: optional function that changes the model before its trainer is created.
    """

    def __init__(self, name, flags, shape, prepare=None):
        self.name, self.flags = name, flags
        cfg, task, model = models.build(flags, shape)
        if prepare:
            prepare(model)
        self.trainer = Trainer(cfg, task, model, task.build_criterion(cfg.criterion))
        self.batch = models.BATCHES[models.common_of(flags)](task.source_dictionary, shape)
        self.clock = pairs.clock_of(shape)
        parameters = list(self.trainer.model.parameters())
        trained = sum(p.numel() for p in parameters if p.requires_grad)
        self.facts = {"parameters": sum(p.numel() for p in parameters), "trained": trained}

    def step(self):
        """Train one update. Return its seconds."""
        started = self.clock()
        self.trainer.train_step([self.batch], raise_oom=True)  # otherwise it would skip the update
        if self.trainer.cuda:
            torch.cuda.synchronize()
        return self.clock() - started

    def count(self):
        """Train one update. Return the FLOPs of its matrix products."""
        with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
            self.step()
        return counter.get_total_flops()


def build(name, flags, given, prepare=None):
    """Create an arm with all ``facts`` of the table; return ``pairs.Absent`` if it runs out of memory."""
    try:
        arm, peak = memory.peak_of(lambda: Arm(name, flags, given, prepare), MEMORY_STEPS, given.device == "cuda")
        arm.facts |= {"flops": arm.count(), "peak_mib": peak / 2**20}
    except RuntimeError as error:
        return pairs.absent(name, flags, error)
    return arm


def build_arms(given):
    """Yield the arms. Each arm named by ``--sorted`` is followed by one that sorts its scores in every forward pass."""
    for name, flags in given.arm:
        yield build(name, flags, given)
        if name in given.sorted:
            yield build(f"{name}, a sort in every forward", flags, given, prepare=sort_at_every_use)


def measure(arms, given):
    """Call ``pairs.measure`` and add the ratio of FLOPs to its results."""
    found = pairs.measure(arms, given.pairs, given.warm_up)
    for entry in found:
        if "absent" not in entry:
            entry["flop_ratio"] = entry["flops"] / found[0]["flops"]
    return found


def add_arguments(parser):
    """Add the arguments of benchmarks of training steps."""
    parser.add_argument("--max-tokens", type=int, default=4096, help="tokens of a batch on each side (default 4096)")
    figure.add_figure(parser)


def facts_of(given, flags_of_arms):
    """Facts of machine and batch, and a sentence about them for below the table."""
    common = {models.common_of(flags) for flags in flags_of_arms}
    sides = " on either side" if models.COMMON in common else ""
    batch = f"{models.sentences_of(given)} sentences of {given.length} tokens{sides}"
    facts = pairs.surroundings(given.device, given.pairs) | {
        "batch": batch,
        "words": given.words,
        "common_flags": " or ".join(sorted(common)),
    }
    return (
        facts,
        f"FLOPs count the matrix products of forward and backward pass. The peak counts the bytes of tensors."
        f" The batch has {batch}, from a dictionary of {given.words:,} words.{pairs.about_clock(given)}",
    )


def read_arguments(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    pairs.add_arguments(parser, "step_time", pairs=40)
    pairs.add_arms(parser, at_most=PROMISED_RATIO)
    parser.add_argument(
        "--sorted", action="append", default=[], metavar="NAME",
        help="time this arm, a supermask model, also with a sort of all scores in every forward pass, as in the paper's code",
    )  # fmt: skip
    add_arguments(parser)
    given = parser.parse_args(arguments)
    if given.arm is None:
        given.arm, given.promise = list(map(pairs.name_and_flags, DEFAULT_ARMS)), given.promise or "only L"
    pairs.check_arms(parser, given, ("pairs", "length", "max_tokens", "words"))
    for name in given.sorted:
        if "--arch supermask" not in dict(given.arm).get(name, ""):
            parser.error(f"--sorted {name}: not the name of an arm with a supermask model")
    return given


def main(arguments=None):
    given = read_arguments(arguments)
    models.import_plugin(given.threads)
    found = measure(build_arms(given), given)
    facts, how = facts_of(given, [flags for _, flags in given.arm])
    result = {"surroundings": facts, "arms": found}
    if given.promise:
        result["promise"] = pairs.check_promise(found, given.promise, given.at_most)
    pairs.write(given.output, result, pairs.markdown(result, COLUMNS, how))
    if given.figure:
        figure.draw(given.figure, {"": found}, pairs.how_measured(facts))
    return result


if __name__ == "__main__":
    result = main()
    sys.exit(0 if result.get("promise", {"holds": True})["holds"] else 1)
