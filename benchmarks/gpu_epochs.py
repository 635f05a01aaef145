"""Time whole epochs of fairseq-train on a GPU: plain fairseq, --fast, --fast --cuda-graphs, and supermask models with graphs.

Every arm is a training by fairseq's own ``main`` in this process: same corpus, same batches, fairseq's data loader, loss, optimizer
and logging, without validation and saving. The arms of a setting take turns, and every other round has the reverse order. The first
epoch of an arm is reported separately, because it plans or records every batch shape. In later rounds cuDNN knows the shapes already.

  python benchmarks/gpu_epochs.py --device cuda --data .gpu/bin --minutes 6
  python benchmarks/gpu_epochs.py --device cuda --setting 1024/4096 --only stock --only graphs --rounds 1
  python benchmarks/gpu_epochs.py --tiny

Every epoch and every arm is a line of JSON, printed and saved as soon as it is known. The table follows at the end. The share of the
card's peak divides the model's FLOPs (``model_flops``; padding does not count) by those of a large bf16 product, measured at the start.
"""

import argparse
import contextlib
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks import epoch_time, gpu_rows, in_process, model_flops, models, pairs, synthetic_corpus  # noqa: E402

COMMON = (
    "-s en -t de --criterion label_smoothed_cross_entropy --label-smoothing 0.1 --share-all-embeddings --dropout 0.2 --optimizer adam"
    " --adam-betas '(0.9, 0.98)' --lr 1e-3 --lr-scheduler inverse_sqrt --warmup-updates 800 --clip-norm 1.0"
)
OURS = "--arch reservoir_transformer --reservoir-encoder {encoder}L --decoder-layers {decoder}"
MASKED = "--arch supermask_one_layer_transformer --encoder-layers {encoder} --decoder-layers {decoder}"
STOCK, FAST, GRAPHS, SUPERMASK = "stock", "fast", "graphs", "supermask"
ARMS = {
    STOCK: "--arch transformer --encoder-layers {encoder} --decoder-layers {decoder}",
    FAST: f"{OURS} --fast",
    GRAPHS: f"{OURS} --fast --cuda-graphs",
    SUPERMASK: f"{MASKED} --fast --cuda-graphs",
}
MULTI30K, WMT = "Multi30k", "lengths as in WMT14"
DATA_SHEET = {"H100": 989e12, "H200": 989e12}  # dense bf16 FLOP/s of the SXM modules, from NVIDIA's data sheets


@dataclass(frozen=True)
class Setting:
    """A shape of the model and of the batches."""

    corpus: str
    width: int
    ffn: int
    heads: int
    encoder: int
    decoder: int
    max_tokens: int
    arms: tuple[str, ...] = (STOCK, FAST, GRAPHS)

    def flags(self, arm):
        """Flags of fairseq-train for the flags of an arm, in which {encoder} and {decoder} are numbers of layers."""
        return (
            f"--encoder-embed-dim {self.width} --encoder-ffn-embed-dim {self.ffn} --encoder-attention-heads {self.heads}"
            f" --decoder-attention-heads {self.heads} --max-tokens {self.max_tokens} "
            + arm.replace("{encoder}", str(self.encoder)).replace("{decoder}", str(self.decoder))
        )


SETTINGS = {
    "512/1024": Setting(MULTI30K, 512, 1024, 4, 6, 6, 4096, (STOCK, FAST, GRAPHS, SUPERMASK)),
    "256/1024": Setting(MULTI30K, 256, 1024, 4, 4, 2, 4096),
    "1024/4096": Setting(WMT, 1024, 4096, 16, 6, 6, 8192),
    "512/1024, large batches": Setting(MULTI30K, 512, 1024, 4, 6, 6, 32768),
}
TINY = {"tiny": Setting(WMT, 16, 24, 2, 2, 1, 600, (STOCK, FAST, GRAPHS, SUPERMASK))}
COLUMNS = (
    ("first epoch", "first", ",.2f"),
    ("later epochs", "later", ",.2f"),
    ("of stock", "later_of_stock", ".3f"),
    ("last epoch", "last", ",.2f"),
    ("of stock", "last_of_stock", ".3f"),
    ("of graphs", "last_of_graphs", ".3f"),
    ("ms per update", "ms", ",.1f"),
    ("target tokens per second", "tokens_per_second", ",.0f"),
    ("TFLOP/s", "tflops", ",.1f"),
    ("share of the measured peak", "share", ".1%"),
    ("loss after each epoch", "losses", ""),
    ("reserved MiB", "reserved_mib", ",.0f"),
)


class Timed:
    """``fairseq_cli.train.train`` with a clock, for one training.

    Args:
        setting: a ``Setting``.
        given: options of the command line.
        rows: ``gpu_rows.Rows`` for the epochs.
        facts: entries of every row.
    """

    def __init__(self, setting, given, rows, facts):
        self.setting, self.given, self.rows, self.facts = setting, given, rows, facts
        self.usual, self.epochs, self.loss = in_process.fairseq_train.train, [], None

    def __call__(self, cfg, trainer, task, epoch_itr):
        """Train and time an epoch. The training ends after it if the time limit has passed."""
        if self.given.batches and not self.epochs:
            fewer_batches(epoch_itr, self.given.batches)
        usual_stats = in_process.fairseq_train.get_training_stats

        def stats(values):
            self.loss = float(values["loss"]) if values.get("loss") is not None else None
            return usual_stats(values)

        updates = trainer.get_num_updates()
        with in_process.patch.object(in_process.fairseq_train, "get_training_stats", stats):
            in_process.synchronize(self.given.device)
            began = time.perf_counter()
            result = self.usual(cfg, trainer, task, epoch_itr)
            in_process.synchronize(self.given.device)
        seconds = time.perf_counter() - began
        graphs, updates = getattr(trainer, "graphs", None), trainer.get_num_updates() - updates
        epoch = self._sizes(task, epoch_itr) | {"seconds": seconds, "loss": self.loss, "updates": updates}
        self.epochs.append(epoch | ({"graphs": graphs.describe()} if graphs else {}))
        self.rows.add(kind="epoch", **self.facts, epoch=len(self.epochs), **self.epochs[-1])
        return (result[0], True) if self.rows.is_over() else result

    def _sizes(self, task, epoch_itr):
        """Batches, target tokens and FLOPs of an epoch."""
        batches, data = epoch_itr.frozen_batches, task.dataset("train")
        order = np.concatenate([np.asarray(batch) for batch in batches])
        source, target, shape = data.src_sizes[order], data.tgt_sizes[order], self.setting
        flops = model_flops.update_flops(
            shape.width, shape.ffn, shape.encoder, shape.decoder, len(task.target_dictionary), source, target
        )
        return {"batches": len(batches), "tokens": int(target.sum()), "flops": flops}


def fewer_batches(epoch_itr, count):
    """Keep only ``count`` batches of an epoch, spread evenly over all batches, which are sorted by length."""
    batches = list(epoch_itr.frozen_batches)
    kept = [batches[i] for i in np.linspace(0, len(batches) - 1, min(count, len(batches))).round().astype(int)]
    epoch_itr.batch_sampler, epoch_itr._frozen_batches = kept, tuple(kept)


@contextlib.contextmanager
def shapes_of_first_epoch():
    """Keep the shapes of --cuda-graphs that are chosen for the first epoch, before ``fewer_batches`` leaves batches out."""
    from fairseq_reservoir.speed.graphs import start

    usual = start.choose_buckets

    def choose(trainer, steps, iterator):
        if steps.padder is None:
            usual(trainer, steps, iterator)

    with in_process.patch.object(start, "choose_buckets", choose):
        yield


def run(name, setting, arm, flags, number, data, given, rows):
    """Train an arm and add its row. An error becomes a row with the reason, so that the other arms are timed."""
    all_flags = (
        f"{COMMON} --num-workers {given.num_workers} --seed {given.seed} --max-epoch {given.epochs}"
        f" {setting.flags(flags)} {given.precision}"
    )
    facts, said = {"setting": name, "arm": arm, "round": number}, []
    timed, failed = Timed(setting, given, rows, facts), None
    try:
        with in_process.kept_messages("cuda-graphs", "batch shapes") as said, shapes_of_first_epoch():
            in_process.train(data, all_flags, given.device, timed)
    except (Exception, SystemExit) as error:  # whatever fails, the other arms are timed
        failed = in_process.reason(error)
    rows.add(
        kind="arm", **facts, flags=all_flags, said=list(said), failed=failed, epochs=timed.epochs,
        reserved_mib=in_process.reserved_mib(given.device),
    )  # fmt: skip
    in_process.free(given.device)
    in_process.renew_generator(given.device)


def summary(rows, peak):
    """One entry per setting and arm, of all rounds.

    ``later`` is the mean time of all epochs but the first, and ``last`` that of the last one, from which speed and FLOPs follow. A ratio
    compares arms of the same round; several rounds give the median of their ratios.

    Args:
        rows: rows of the kind "arm".
        peak: FLOP/s that ``share`` refers to.
    """
    seconds = {}
    for row in rows:
        later = [epoch["seconds"] for epoch in row["epochs"][1:]]
        if later and not row["failed"]:
            times = {"later": statistics.mean(later), "last": later[-1]}
            seconds.setdefault((row["setting"], row["arm"]), {})[row["round"]] = times
    entries = []
    for setting, arm in dict.fromkeys((row["setting"], row["arm"]) for row in rows):
        own = [row for row in rows if (row["setting"], row["arm"]) == (setting, arm)]
        entry = {"setting": setting, "arm": arm, "failed": next((row["failed"] for row in own if row["failed"]), None)}
        whole = [row for row in own if row["epochs"] and not row["failed"]]
        if whole:
            entry["first"], entry["losses"] = whole[0]["epochs"][0]["seconds"], losses_of(whole[0])
            entry["reserved_mib"] = max(row["reserved_mib"] or 0 for row in whole)
        rounds = seconds.get((setting, arm), {})
        if rounds:
            entry |= {part: statistics.mean(times[part] for times in rounds.values()) for part in ("later", "last")}
            entry |= speed_of(entry["last"], whole[0]["epochs"][-1], peak)
        for other in (STOCK, GRAPHS):
            theirs = seconds.get((setting, other), {})
            for part in ("later", "last"):
                ratios = [times[part] / theirs[number][part] for number, times in rounds.items() if number in theirs]
                if ratios:
                    entry[f"{part}_of_{other}"] = statistics.median(ratios)
        entries.append(entry)
    return entries


def speed_of(seconds, epoch, peak):
    """Speed of an epoch that took ``seconds``: ms per update, tokens per second, TFLOP/s and the share of the peak."""
    speed = epoch["flops"] / seconds
    return {
        "ms": 1000 * seconds / epoch["batches"],
        "tokens_per_second": epoch["tokens"] / seconds,
        "tflops": speed / 1e12,
        "share": speed / peak,
    }


def losses_of(row):
    """The losses after each epoch, as text."""
    return " ".join("none" if epoch["loss"] is None else f"{epoch['loss']:.3f}" for epoch in row["epochs"])


def markdown(entries, facts, given):
    """The table of ``summary`` and how it was measured."""
    lines = ["| setting | arm | " + " | ".join(heading for heading, _, _ in COLUMNS) + " |"]
    lines.append("|---" * (2 + len(COLUMNS)) + "|")
    for entry in entries:
        cells = [format(entry[key], style) if key in entry else "" for _, key, style in COLUMNS]
        if entry["failed"]:
            cells[0] = entry["failed"].replace("|", "/")
        lines.append("| " + " | ".join([entry["setting"], entry["arm"], *cells]) + " |")
    sheet = (
        f" ({facts['peak_tflops'] * 1e12 / facts['data_sheet']:.0%} of the data sheet)" if facts["data_sheet"] else ""
    )
    lines += [
        "",
        f"Each arm trained {given.epochs} epochs in each of {given.rounds} rounds, or fewer if the time was over. Times are seconds per"
        " epoch; the mean of the later epochs includes batch shapes that --cuda-graphs records in them. Speeds are those of the last"
        " epoch. A ratio compares arms of the same round, and is the median of the rounds.",
        f"The measured peak is {facts['peak_tflops']:,.0f} TFLOP/s, from products of large random bf16 matrices{sheet}."
        " FLOPs are those of the model; padding does not count.",
        f"Measured at commit {facts['commit']} with torch {facts['torch']}, {facts['fairseq']} and Python {facts['python']}, on"
        f" {facts['device']} with {facts['threads']} of {facts['cores']} CPU threads.",
        "",
        f"    all: {COMMON} --num-workers {given.num_workers} {given.precision}",
    ]
    for name, setting in given.settings.items():
        lines.append(f"    {name}: {setting.corpus}, {setting.flags('').strip()}")
    return "\n".join(lines + [f"    {name}: {flags}" for name, flags in given.arms.items()]) + "\n"


def read_arguments(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    gpu_rows.add_arguments(parser, "gpu_epochs")
    parser.add_argument(
        "--data", type=Path, help="binarised Multi30k; without --data and --raw its settings are skipped"
    )
    parser.add_argument("--raw", type=Path, help="instead of --data: raw text of Multi30k, binarised once")
    parser.add_argument(
        "--setting", action="append", choices=SETTINGS, metavar="NAME", help=f"repeat; of: {'; '.join(SETTINGS)}"
    )
    parser.add_argument("--only", action="append", choices=ARMS, metavar="ARM", help=f"repeat; of: {', '.join(ARMS)}")
    parser.add_argument(
        "--arm", action="append", type=pairs.name_and_flags, default=[], metavar='"NAME: FLAGS"',
        help="repeat; another arm of every setting; {encoder} and {decoder} are its numbers of layers",
    )  # fmt: skip
    parser.add_argument("--epochs", type=int, default=3, help="default 3")
    parser.add_argument("--rounds", type=int, default=2, help="default 2; the settings take turns in each")
    parser.add_argument(
        "--batches",
        type=int,
        help="train only this many batches per epoch, of all lengths; graphs still have shapes for all batches",
    )
    parser.add_argument("--num-workers", type=int, default=0, help="processes of the data loader (default 0)")
    parser.add_argument("--precision", default="--bf16", help="flag of the precision (default --bf16; '' for fp32)")
    parser.add_argument("--sentences", type=int, default=20000, help="of the corpus of random tokens (default 20000)")
    parser.add_argument("--words", type=int, default=32768, help="of the corpus of random tokens (default 32768)")
    given = parser.parse_args(arguments)
    if given.batches is not None:
        pairs.check_positive(parser, given, ("batches",))
    pairs.check_positive(parser, given, ("epochs", "rounds", "sentences", "words"))
    if given.data and given.raw:
        parser.error("--raw: give it or --data, not both")
    if given.data and not given.data.is_dir():
        parser.error(f"--data {given.data}: no such folder")
    chosen = TINY if given.tiny else {name: SETTINGS[name] for name in given.setting or SETTINGS}
    with_data = bool(given.data or given.raw)
    given.settings = {name: one for name, one in chosen.items() if one.corpus != MULTI30K or with_data}
    if not given.settings:
        parser.error("--setting: needs --data or --raw")
    if given.tiny:
        given.sentences, given.words = min(given.sentences, 60), min(given.words, 40)
    if given.device == "cpu":  # graphs need a GPU
        given.only = [arm for arm in given.only or ARMS if "--cuda-graphs" not in ARMS[arm]]
    given.arms = {arm: ARMS[arm] for arm in given.only or ARMS} | dict(given.arm)
    given.corpus = "multi30k"  # of epoch_time, for --raw
    return given


def plan(given):
    """Yield (setting's name, arm, flags, number of the round) of all trainings in order."""
    extra = [name for name, _ in given.arm]
    for number in range(1, given.rounds + 1):
        for name, setting in given.settings.items():
            arms = [arm for arm in given.arms if arm in setting.arms or arm in extra]
            for arm in arms if number % 2 else reversed(arms):
                yield name, arm, given.arms[arm], number


def main(arguments=None):
    given = read_arguments(arguments)
    rows = gpu_rows.Rows(given.output, given.minutes)
    models.import_plugin(given.threads)
    if given.raw:
        given.data = epoch_time.cut(given)
    facts = pairs.surroundings(given.device, given.rounds)
    peak = model_flops.measured_peak(given.device, 256 if given.device == "cpu" else 8192)
    sheet = next((flops for card, flops in DATA_SHEET.items() if card in facts["device"]), None)
    facts |= {"peak_tflops": peak / 1e12, "data_sheet": sheet}
    rows.add(kind="facts", **facts)
    with tempfile.TemporaryDirectory() as folder:
        random_tokens = Path(folder) / "wmt"
        if any(setting.corpus == WMT for setting in given.settings.values()):
            lengths = synthetic_corpus.wmt_lengths(given.sentences, given.seed)
            synthetic_corpus.write(random_tokens, lengths, given.words, given.seed)
        for name, arm, flags, number in plan(given):
            if rows.is_over():
                break
            setting = given.settings[name]
            data = random_tokens if setting.corpus == WMT else given.data
            run(name, setting, arm, flags, number, data, given, rows)
            report(rows, peak, facts, given)
    return report(rows, peak, facts, given, show=True)


def report(rows, peak, facts, given, show=False):
    """Write the results so far, and return them. If ``show``, also print the table."""
    entries = summary(rows.of_kind("arm"), peak)
    result = {"surroundings": facts, "arms": entries, "rows": rows.of_kind("arm")}
    pairs.write(given.output, result, markdown(entries, facts, given), show)
    return result


if __name__ == "__main__":
    main()
