"""Time training steps of one static batch: a plain PyTorch model with torch.compile, beside stock fairseq, --fast and --cuda-graphs.

The peer is what a user without fairseq may write: ``plain_transformer`` with ``torch.compile(mode="reduce-overhead")``, which replays
CUDA graphs. All models are of 512/1024 with 6 + 6 layers and train in bf16 on a batch of the same shape, without padding. A step of
ours is fairseq's ``Trainer.train_step`` in a training started by fairseq's ``main``. It copies the batch to the device and logs;
the peer does neither. Each arm of ours is timed in interleaved pairs with the peer (see ``pairs``). A time is that of a group of steps,
divided by their number.

  python benchmarks/gpu_peer.py --device cuda --minutes 3
  python benchmarks/gpu_peer.py --tiny

Every result is a line of JSON, printed and saved as soon as it is known. The table follows at the end. On a CPU the peer is not compiled.
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from fairseq.data import iterators
from fairseq.logging import metrics

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks import gpu_epochs, gpu_rows, in_process, models, pairs, synthetic_corpus  # noqa: E402
from benchmarks.plain_transformer import PlainStep, PlainTransformer  # noqa: E402

ARMS = (gpu_epochs.GRAPHS, gpu_epochs.FAST, gpu_epochs.STOCK)  # the most valuable first
COLUMNS = (
    ("ms per update", "ms", ",.2f"),
    ("of the peer", "ratio", ".3f"),
    ("95 % interval", "interval", ""),
    ("target tokens per second", "tokens_per_second", ",.0f"),
    ("reserved MiB", "reserved_mib", ",.0f"),
)


def setting(given, tokens):
    """The models' shape."""
    if given.tiny:
        return gpu_epochs.Setting(gpu_epochs.WMT, 16, 24, 2, 2, 1, tokens)
    return gpu_epochs.Setting(gpu_epochs.WMT, 512, 1024, 4, 6, 6, tokens)


def peer(given, shape, mode):
    """Build the peer, compiled with ``mode`` if given, and run its first steps. Return it and the seconds of these steps."""
    torch.manual_seed(given.seed)
    model = PlainTransformer(given.words, shape.width, shape.ffn, shape.heads, shape.encoder, shape.decoder)
    sentences = shape.max_tokens // given.length
    source, target = torch.randint(4, given.words, (2, sentences, given.length)).to(given.device)
    plain = PlainStep(model.to(given.device), source, target, mode)
    in_process.synchronize(given.device)
    began = time.perf_counter()
    for _ in range(5):
        plain.step()
    in_process.synchronize(given.device)
    return plain, time.perf_counter() - began


def add_peer(given, shape, rows):
    """Build and time the peer. If it cannot be compiled, that is a row, and the peer is a model in eager mode."""
    in_process.free(given.device)
    for mode in [None] if given.device == "cpu" else ["reduce-overhead", None]:
        name = f"plain PyTorch, {mode or 'eager'}"
        try:
            plain, seconds = peer(given, shape, mode)
        except Exception as error:  # of the compiler
            if mode is None:
                raise
            rows.add(kind="arm", tokens=shape.max_tokens, arm=name, failed=in_process.reason(error))
            continue
        groups = [seconds_of(plain.step, given) for _ in range(3)]
        rows.add(
            kind="arm", tokens=shape.max_tokens, arm=name, failed=None, first_five_seconds=seconds,
            reserved_mib=in_process.reserved_mib(given.device), **result_of(groups, plain.source.numel()),
        )  # fmt: skip
        return plain


def seconds_of(step, given):
    """Seconds per step of a group of steps."""
    in_process.synchronize(given.device)
    began = time.perf_counter()
    for _ in range(given.steps):
        step()
    in_process.synchronize(given.device)
    return (time.perf_counter() - began) / given.steps


class Steps:
    """Replaces ``fairseq_cli.train.train``: times steps on one batch, in pairs with the peer, and ends the training."""

    def __init__(self, plain, given):
        self.plain, self.given, self.found, self.error = plain, given, None, None

    def __call__(self, cfg, trainer, task, epoch_itr):
        batches = iterators.GroupedIterator(epoch_itr.next_epoch_itr(shuffle=False), 1)
        samples, given = next(iter(batches)), self.given
        trainer.begin_epoch(1)

        def step():
            with metrics.aggregate("train_inner"):
                trainer.train_step(samples, raise_oom=True)

        for _ in range(given.warm_up):
            step()
        theirs, ours = pairs.time_pairs(
            lambda: seconds_of(self.plain.step, given), lambda: seconds_of(step, given), given.pairs
        )
        self.found = {"theirs": theirs, "ours": ours, "tokens": int(samples[0]["ntokens"])}
        self.found["shape"] = list(samples[0]["target"].shape)
        return [None], True


def run(arm, plain, data, shape, given, rows):
    """Time an arm of ours beside the peer, and add its row. An error becomes a row with the reason."""
    flags = (
        f"{gpu_epochs.COMMON} --num-workers 0 --seed {given.seed} --max-epoch 1 {shape.flags(gpu_epochs.ARMS[arm])}"
        f" {given.precision}"
    )
    timed, failed = Steps(plain, given), None
    try:
        with in_process.kept_messages("cuda-graphs") as said:
            in_process.train(data, flags, given.device, timed)
    except (Exception, SystemExit) as error:  # whatever fails, the other arms are timed
        failed = in_process.reason(error)
    row = {"tokens": shape.max_tokens, "arm": arm, "flags": flags, "failed": failed, "said": list(said)}
    if timed.found:
        row |= result_of(timed.found["ours"], timed.found["tokens"])
        compared = pairs.compare(timed.found["theirs"], timed.found["ours"])
        row |= {"ratio": compared["ratio"], "interval": f"{compared['low']:.3f} to {compared['high']:.3f}"}
        row |= {"shape": timed.found["shape"], "peer_ms": 1000 * statistics.median(timed.found["theirs"])}
    rows.add(kind="arm", **row, reserved_mib=in_process.reserved_mib(given.device))
    in_process.free(given.device)
    in_process.renew_generator(given.device)


def result_of(seconds, tokens):
    median = statistics.median(seconds)
    return {"seconds": seconds, "ms": 1000 * median, "tokens_per_second": tokens / median}


def compare(tokens, given, rows):
    """Time all arms at a number of tokens."""
    shape = setting(given, tokens)
    sentences = tokens // given.length
    with tempfile.TemporaryDirectory() as folder:
        lengths = np.full((2, 2 * sentences), given.length - 1)
        synthetic_corpus.write(Path(folder), lengths, given.words, given.seed)
        plain = add_peer(given, shape, rows)
        for arm in given.arms:
            if not rows.is_over():
                run(arm, plain, Path(folder), shape, given, rows)
    del plain
    torch.compiler.reset()
    in_process.free(given.device)


def markdown(rows, facts, given):
    """The table and how it was measured."""
    lines = ["| tokens | arm | " + " | ".join(heading for heading, _, _ in COLUMNS) + " |"]
    lines.append("|---" * (2 + len(COLUMNS)) + "|")
    for row in rows:
        cells = [format(row[key], style) if row.get(key) is not None else "" for _, key, style in COLUMNS]
        if row["failed"]:
            cells[0] = row["failed"].replace("|", "/")
        lines.append("| " + " | ".join([f"{row['tokens']:,}", row["arm"], *cells]) + " |")
    lines += [
        "",
        f"Steps of one batch of sentences of {given.length} tokens without padding, {given.words:,} words, {given.precision}."
        f" The peer's float32 weights are cast by autocast. Each time is that of {given.steps} steps. A ratio is the median of"
        f" {given.pairs} interleaved pairs with the peer. Reserved memory includes the peer's.",
        f"Measured at commit {facts['commit']} with torch {facts['torch']}, {facts['fairseq']} and Python {facts['python']}, on"
        f" {facts['device']} with {facts['threads']} of {facts['cores']} CPU threads.",
    ]
    return "\n".join(lines) + "\n"


def read_arguments(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    gpu_rows.add_arguments(parser, "gpu_peer")
    parser.add_argument("--tokens", type=int, nargs="+", default=[4096, 32768], help="default 4096 32768")
    parser.add_argument("--length", type=int, default=32, help="tokens per sentence (default 32)")
    parser.add_argument("--words", type=int, default=10000, help="size of the joint dictionary (default 10000)")
    parser.add_argument("--only", action="append", choices=ARMS, help="repeat; arms beside the peer")
    parser.add_argument("--pairs", type=int, default=8, help="pairs of groups per arm (default 8)")
    parser.add_argument("--steps", type=int, default=10, help="steps of a group (default 10)")
    parser.add_argument("--warm-up", type=int, default=8, help="untimed steps per arm (default 8)")
    parser.add_argument("--precision", default="--bf16", help="flag of our precision (default --bf16)")
    given = parser.parse_args(arguments)
    pairs.check_positive(parser, given, ("length", "words", "pairs", "steps"))
    if given.tiny:
        given.tokens, given.length, given.words = [40], 5, 20
        given.pairs, given.steps, given.warm_up = 2, 1, 1
    if min(given.tokens) < given.length:
        parser.error(f"--tokens {min(given.tokens)}: at least --length {given.length}")
    given.arms = given.only or list(ARMS)
    if given.device == "cpu":  # graphs need a GPU
        given.arms = [arm for arm in given.arms if arm != gpu_epochs.GRAPHS]
    return given


def main(arguments=None):
    given = read_arguments(arguments)
    rows = gpu_rows.Rows(given.output, given.minutes)
    models.import_plugin(given.threads)
    facts = pairs.surroundings(given.device, given.pairs)
    rows.add(kind="facts", **facts)
    for tokens in given.tokens:
        if not rows.is_over():
            compare(tokens, given, rows)
    found = rows.of_kind("arm")
    result = {"surroundings": facts, "arms": found}
    pairs.write(given.output, result, markdown(found, facts, given))
    return result


if __name__ == "__main__":
    main()
