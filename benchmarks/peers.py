"""Target tokens a second beside what people would pick instead: stock fairseq, ours, ours with --fast, transformers, eole and joeynmt.

All train the same shape on the same batches of real sentences, cut and batched as stock fairseq does it: forward with dropout,
label-smoothed loss, backward, clipping, Adam. Each is a process of its own that trains in its toolkit's own loop (the workers in ``peers/``
say what differs), and all stay alive and take turns: a batch each, beginning with another every two rounds. Ratios are of seconds, round
by round.

  python benchmarks/peers.py --raw FOLDER --threads 1
  python benchmarks/peers.py --raw FOLDER --dry-run     what would be installed and run

Toolkits of other people get environments of their own below ``--environments``, made from the package index the first time, with the torch
of this environment; one that cannot be installed, or does not run, is a row that says so.
"""

import argparse
import ast
import contextlib
import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks import epoch_time, pairs, peer_environments  # noqa: E402

WORKERS = Path(__file__).resolve().parent / "peers"
RECIPE = {"dropout": 0.2, "smoothing": 0.1, "rate": 1e-3, "betas": [0.9, 0.98], "warm_up": 800, "clip": 1.0}
SHAPE = {"width": 256, "ffn": 1024, "heads": 4, "encoder_layers": 4, "decoder_layers": 2}
TINY = {"width": 16, "ffn": 24, "heads": 2, "encoder_layers": 2, "decoder_layers": 1}
STOCK, OURS, FAST = "stock fairseq", "ours, only L", "ours, only L, --fast"
COLUMNS = (
    ("target tokens a second", "tokens_per_second", ",.0f"),
    ("seconds a step", "seconds", ".3f"),
    ("parameters", "parameters", ","),
    ("version", "version", ""),
)
NATIVE_BF16 = {"avx512_bf16", "amx_bf16", "bf16"}


class Stopped(Exception):
    """A worker's last word."""


class Worker:
    """A process that trains a step whenever it is asked to.

    Args:
        name: what the table calls it.
        flags: what the table says of it below.
        command: its command line.
        environment: its environment variables.
        log: the file that takes what it prints.
    """

    def __init__(self, name, flags, command, environment, log):
        self.name, self.flags, self.log, self.facts = name, flags, log, {}
        ours, theirs = os.pipe()
        with open(log, "w") as file:
            self.process = subprocess.Popen(
                list(map(str, command)), stdin=subprocess.PIPE, stdout=file, stderr=file, text=True, cwd=pairs.ROOT,
                env=environment | {"BENCHMARK_REPORTS": str(theirs)}, pass_fds=[theirs],
            )  # fmt: skip
        os.close(theirs)
        self.reports = os.fdopen(ours)

    def start(self):
        """Waits until it is ready for the first step."""
        self.facts |= self._report()

    def step(self):
        """Trains on the next batch and returns the seconds that this took."""
        with contextlib.suppress(BrokenPipeError):
            print(file=self.process.stdin, flush=True)
        report = self._report()
        self.facts |= {"moved": report["moved"]} if "moved" in report else {}
        return report["seconds"]

    def _report(self):
        line = self.reports.readline()
        if not line:
            status = self.process.wait()
            said = [words for words in self.log.read_text(errors="replace").splitlines() if words.strip()]
            raise Stopped(f"status {status}: {said[-1].strip() if said else 'no word'}")
        return json.loads(line)

    def end(self):
        """Closes its stdin, which ends it; kills it if it does not."""
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.reports.close()


def flags_of(given, name):
    """Flags of fairseq-train for stock fairseq or for one of ours."""
    shape, recipe = given.shape, given.recipe
    text = (
        f"--encoder-embed-dim {shape['width']} --encoder-ffn-embed-dim {shape['ffn']} --encoder-attention-heads {shape['heads']}"
        f" --decoder-attention-heads {shape['heads']} --share-all-embeddings --criterion label_smoothed_cross_entropy"
        f" --label-smoothing {recipe['smoothing']} --dropout {recipe['dropout']} --optimizer adam --adam-betas '{tuple(recipe['betas'])}'"
        f" --lr {recipe['rate']} --lr-scheduler inverse_sqrt --warmup-updates {recipe['warm_up']} --clip-norm {recipe['clip']}"
        f" --max-tokens {given.max_tokens} --seed {given.seed} --cpu --num-workers 0 --max-epoch 1 --no-save --disable-validation"
        " --log-format json --log-interval 20"
    ) + (" --bf16" if given.precision == "bf16" else "")
    encoder, decoder = shape["encoder_layers"], shape["decoder_layers"]
    if name == STOCK:
        text = f"--arch transformer --encoder-layers {encoder} --decoder-layers {decoder} {text}"
    else:
        plan = f"--reservoir-encoder {'L' * encoder} --reservoir-decoder {'L' * decoder}"
        text = f"--user-dir fairseq_reservoir --arch reservoir_transformer {plan} {text}"
    return shlex.split(text) + ["--fast"] * (name == FAST)


def told_of(given, name):
    """What the table says below of an arm: flags of fairseq-train, or what a worker's docstring says that differs."""
    if name not in peer_environments.PEERS:
        return shlex.join(flags_of(given, name))
    said = ast.get_docstring(ast.parse((WORKERS / peer_environments.PEERS[name].worker).read_text()))
    return " ".join(said.partition("\n\n")[2].split())


def command_of(given, name, job):
    """The command line of a worker."""
    if name in (STOCK, OURS, FAST):
        return [sys.executable, WORKERS / "fairseq_steps.py", job, given.data, *flags_of(given, name)]
    peer = peer_environments.PEERS[name]
    return [peer_environments.python_of(given.environments / name), WORKERS / peer.worker, job]


def environment_of(given, name):
    """The environment variables of a worker; the plugin is on the path of ours alone."""
    quiet = {"PYTHONWARNINGS": "ignore", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    threads = {f"{library}_NUM_THREADS": str(given.threads) for library in ("OMP", "MKL")}
    # Stock fairseq leaves some sentences out. With them there may be a batch more, and all batches come in another order.
    path = {"PYTHONPATH": str(pairs.ROOT), "FAIRSEQ_RESERVOIR_WITHOUT": "last-batch"} if name in (OURS, FAST) else {}
    return {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | quiet | threads | path


def write_job(given, folder):
    """The file that all workers read; the batches are the first that stock fairseq trains on.

    Raises:
        SystemExit: fairseq did not write as many.
    """
    written, job, count = folder / "batches.json", folder / "job.json", given.warm_up + given.pairs
    command = [
        sys.executable,
        WORKERS / "fairseq_steps.py",
        "--write",
        count,
        written,
        given.data,
        *flags_of(given, STOCK),
    ]
    ended = subprocess.run(
        list(map(str, command)), env=environment_of(given, STOCK), capture_output=True, text=True, cwd=pairs.ROOT
    )
    if not written.is_file():
        said = (ended.stderr or ended.stdout or "no word").strip().splitlines()[-1]
        hint = (
            f"fewer than {count} batches of --max-tokens {given.max_tokens} in an epoch"
            if not ended.returncode
            else said
        )
        sys.exit(f"peers: --data {given.data}: {hint}")
    numbers = {"threads": given.threads, "seed": given.seed, "precision": given.precision}
    job.write_text(json.dumps(numbers | given.shape | given.recipe | json.loads(written.read_text())))
    return job


def absent(given):
    """Names of the toolkits that no row can time, and why."""
    missing = {}
    for name in given.only:
        if name in peer_environments.PEERS:
            try:
                if given.offline and not peer_environments.made(name, given.environments):
                    missing[name] = "not installed: left out by --offline"
                elif not given.offline:
                    peer_environments.make(name, given.environments)
            except peer_environments.NotInstalled as error:
                missing[name] = f"could not be installed: {error}"
    return missing


def take_turns(workers, rounds, seconds=None):
    """Seconds of ``rounds`` rounds, a list for each worker's name, and what workers said that stopped.

    In every round each worker trains once, on the same batch; odd rounds run backwards, and every two rounds another begins.

    Args:
        seconds: an end after the round in which so many have gone by.
    """
    times, stopped, gone = {worker.name: [] for worker in workers}, {}, 0.0
    for number in range(rounds):
        shift = number // 2 % len(workers)
        order = workers[shift:] + workers[:shift]
        for worker in order if number % 2 == 0 else reversed(order):
            if worker.name in stopped:
                continue
            try:
                times[worker.name].append(worker.step())
                gone += times[worker.name][-1]
            except Stopped as error:
                stopped[worker.name] = str(error)
        if seconds and gone >= seconds:
            break
    return times, stopped


def measure(workers, given, tokens):
    """A result for each worker, as ``pairs.measure`` has them, the first being the baseline.

    Raises:
        SystemExit: the baseline stopped.
    """
    stopped = {}
    for worker in workers:
        try:
            worker.start()
        except Stopped as error:
            stopped[worker.name] = str(error)
    running = [worker for worker in workers if worker.name not in stopped]
    if workers[0] in running:
        stopped |= take_turns(running, given.warm_up)[1]
    running = [worker for worker in running if worker.name not in stopped]
    times = {}
    if workers[0] in running:
        times, later = take_turns(running, given.pairs, given.seconds)
        stopped |= later
    if workers[0].name in stopped:
        sys.exit(f"peers: {workers[0].name}: {stopped[workers[0].name]} (all of it: {workers[0].log})")
    baseline, results = times[workers[0].name], []
    given.pairs = len(baseline)
    for worker in workers:
        result = {"arm": worker.name, "flags": worker.flags, **worker.facts}
        if worker.name in stopped:
            result["absent"] = f"does not run: {stopped[worker.name]}"
        else:
            spent = times[worker.name]
            result["seconds"] = sum(spent) / len(spent)
            result["tokens_per_second"] = sum(tokens[: len(spent)]) / sum(spent)
            result |= pairs.compare(baseline, spent) if worker is not workers[0] else {}
        results.append(result)
    return results


def tokens_of(job, skipped):
    """Target tokens of the batches that are timed, and words on what batches are like."""
    batches = json.loads(job.read_text())["batches"][skipped:]
    targets = [[len(target) for _, target in batch] for batch in batches]
    padded = sum(len(lengths) * max(lengths) for lengths in targets)
    counted = list(map(sum, targets))
    return counted, (
        f"{sum(map(len, targets)) / len(targets):.0f} sentences and {sum(counted) / len(counted):,.0f} target tokens a batch in the mean,"
        f" {100 * (1 - sum(counted) / padded):.0f} % of target positions padded"
    )


def read_arguments(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    pairs.add_arguments(parser, "peers", pairs=40)
    parser.set_defaults(threads=1)
    parser.add_argument(
        "--data", type=Path, help="the binarised corpus (default: where examples/multi30k.sh leaves it)"
    )
    parser.add_argument("--raw", type=Path, help="instead: raw text, named as Multi30k's, to cut and binarise once")
    parser.add_argument("--max-tokens", type=int, default=4096, help="tokens of a batch on either side (default 4096)")
    parser.add_argument(
        "--seconds", type=float, help="end after the round in which so many seconds of steps have gone by"
    )
    parser.add_argument(
        "--precision", choices=["fp32", "bf16"], default="fp32",
        help="bf16: fairseq's --bf16; autocast in the others, as they do it; only where the processor multiplies in it",
    )  # fmt: skip
    names = [OURS, FAST, *peer_environments.PEERS]
    parser.add_argument(
        "--only", action="append", choices=names, metavar="NAME",
        help=f"repeat: instead of all of {'; '.join(names)}; stock fairseq is always the first",
    )  # fmt: skip
    parser.add_argument(
        "--environments", type=Path, default=Path("runs/peers"),
        help="folder of the other toolkits' environments, made where missing (default runs/peers)",
    )  # fmt: skip
    parser.add_argument(
        "--offline", action="store_true", help="install nothing: toolkits without an environment get no time"
    )
    parser.add_argument("--tiny", action="store_true", help="a tiny model, to try the command; its figures say nothing")
    parser.add_argument("--dry-run", action="store_true", help="only print what would be installed and run")
    given = parser.parse_args(arguments)
    pairs.check_positive(parser, given, ("pairs", "threads", "max_tokens") + ("seconds",) * (given.seconds is not None))
    if given.device != "cpu":
        parser.error("--device cuda: only the processor is timed here")
    if given.warm_up < 2:
        parser.error(f"--warm-up {given.warm_up}: at least 2, as the first steps are unlike the others")
    if given.precision == "bf16" and not NATIVE_BF16 & set(pairs.processor_features().split(", ")):
        parser.error("--precision bf16: this processor does not multiply in it; choose fp32")
    if given.data and given.raw:
        parser.error("--raw: give it or --data, not both")
    given.corpus, given.shape, given.recipe = "multi30k", TINY if given.tiny else SHAPE, RECIPE
    given.only = [name for name in names if name in (given.only or names)]
    given.environments = given.environments.absolute()
    if given.raw is None:
        given.data = (given.data or pairs.ROOT / epoch_time.CORPORA[given.corpus][0]).absolute()
        if not given.data.is_dir() and not given.dry_run:
            parser.error(f"--data {given.data}: no such folder; examples/multi30k.sh makes it, or give --raw FOLDER")
    return given


def describe(given):
    """What ``--dry-run`` prints."""
    given.data = given.data or "DATA"
    for name in given.only:
        if name in peer_environments.PEERS:
            ready = "is there" if peer_environments.made(name, given.environments) else "would be made"
            print(f"{given.environments / name}: {ready}: {', '.join(peer_environments.PEERS[name].packages)}")
    for name in [STOCK, *given.only]:
        print(f"{name}: {shlex.join(map(str, command_of(given, name, 'JOB')))}")


def main(arguments=None):
    given = read_arguments(arguments)
    if given.dry_run:
        return describe(given)
    if given.raw:
        given.data = epoch_time.cut(given)
    missing = absent(given)
    given.output.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="peers-") as folder, contextlib.ExitStack() as ending:
        job = write_job(given, Path(folder))
        tokens, batches = tokens_of(job, given.warm_up)
        load = os.getloadavg()[0]
        workers = []
        for name in [STOCK, *(name for name in given.only if name not in missing)]:
            log = Path(f"{given.output}-{name.replace(', ', '-').replace(' ', '_')}.log")
            workers.append(
                Worker(name, told_of(given, name), command_of(given, name, job), environment_of(given, name), log)
            )
            ending.callback(workers[-1].end)
        found = measure(workers, given, tokens)
    found += [{"arm": name, "flags": "", "absent": reason} for name, reason in missing.items()]
    facts = pairs.surroundings(given.device, given.pairs) | {
        "threads": given.threads, "precision": given.precision, "load_before": load, "batches": batches, "shape": given.shape,
        "recipe": given.recipe, "features": pairs.processor_features(),
        "command": shlex.join(sys.argv if arguments is None else list(map(str, arguments))),
    }  # fmt: skip
    how = (
        f"{given.precision}; seconds of the same {given.pairs} batches of {given.data.parent.name}, {batches}; shape {given.shape};"
        f" recipe {given.recipe}."
        f" Load of the machine before: {load:.2f}. Processor: {facts['features']}.\n\n    {facts['command']}"
    )
    result = {"surroundings": facts, "arms": found}
    pairs.write(given.output, result, pairs.markdown(result, COLUMNS, how))
    return result


if __name__ == "__main__":
    main()
