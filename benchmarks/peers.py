"""Training speed in target tokens per second: stock fairseq, ours, ours with --fast, transformers, eole and joeynmt.

All train models of the same size on the same batches of real sentences, made by stock fairseq. A step is forward with dropout,
label-smoothed loss, backward, clipping and Adam. Each toolkit runs its own training loop in a separate process; the docstrings in
``peers/`` list differences. The processes take turns, one batch each. Every two rounds another one begins. Ratios are computed from
the seconds of each round.

  python benchmarks/peers.py --raw FOLDER --threads 1
  python benchmarks/peers.py --raw FOLDER --dry-run     list the packages and commands

The other toolkits are installed from the package index into environments below ``--environments`` on first use. They use the torch of
this environment. A toolkit that cannot be installed or run gets a row with the reason.
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
    ("target tokens per second", "tokens_per_second", ",.0f"),
    ("seconds per step", "seconds", ".3f"),
    ("parameters", "parameters", ","),
    ("version", "version", ""),
)
NATIVE_BF16 = {"avx512_bf16", "amx_bf16", "bf16"}


class Stopped(Exception):
    """A worker has stopped; the message has its last line of output."""


class Worker:
    """A process that trains one step on request.

    Args:
        name: name in the table.
        flags: description below the table.
        command: its command line.
        environment: its environment variables.
        log: file for its output.
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
        """Wait until the process is ready for the first step."""
        self.facts |= self._report()

    def step(self):
        """Train on the next batch. Return the seconds of the step."""
        with contextlib.suppress(BrokenPipeError):
            print(file=self.process.stdin, flush=True)
        report = self._report()
        self.facts |= {"moved": report["moved"]} if "moved" in report else {}
        return report["seconds"]

    def _report(self):
        line = self.reports.readline()
        if not line:
            status = self.process.wait()
            lines = [line for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
            raise Stopped(f"status {status}: {lines[-1].strip() if lines else 'no output'}")
        return json.loads(line)

    def end(self):
        """End the process by closing its stdin; kill it if it does not end."""
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


def describe_arm(given, name):
    """Description of an arm below the table: flags of fairseq-train, or the differences in a worker's docstring."""
    if name not in peer_environments.PEERS:
        return shlex.join(flags_of(given, name))
    docstring = ast.get_docstring(ast.parse((WORKERS / peer_environments.PEERS[name].worker).read_text()))
    return " ".join(docstring.partition("\n\n")[2].split())


def command_of(given, name, job):
    """Command line of a worker."""
    if name in (STOCK, OURS, FAST):
        return [sys.executable, WORKERS / "fairseq_steps.py", job, given.data, *flags_of(given, name)]
    peer = peer_environments.PEERS[name]
    return [peer_environments.python_of(given.environments / name), WORKERS / peer.worker, job]


def environment_of(given, name):
    """Environment variables of a worker. Only our workers have the plugin on their path."""
    quiet = {"PYTHONWARNINGS": "ignore", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    threads = {f"{library}_NUM_THREADS": str(given.threads) for library in ("OMP", "MKL")}
    # Stock fairseq drops some sentences. With them there may be one more batch, and the order of all batches differs.
    path = {"PYTHONPATH": str(pairs.ROOT), "FAIRSEQ_RESERVOIR_WITHOUT": "last-batch"} if name in (OURS, FAST) else {}
    return {key: value for key, value in os.environ.items() if key != "PYTHONPATH"} | quiet | threads | path


def write_job(given, folder):
    """Write the file that all workers read. It has the first batches on which stock fairseq trains.

    Raises:
        SystemExit: fairseq failed, or has too few batches.
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
        last_line = (ended.stderr or ended.stdout or "no output").strip().splitlines()[-1]
        hint = (
            f"fewer than {count} batches of --max-tokens {given.max_tokens} in an epoch"
            if not ended.returncode
            else last_line
        )
        sys.exit(f"peers: --data {given.data}: {hint}")
    numbers = {"threads": given.threads, "seed": given.seed, "precision": given.precision}
    job.write_text(json.dumps(numbers | given.shape | given.recipe | json.loads(written.read_text())))
    return job


def absent(given):
    """Toolkits that cannot be timed: name -> reason."""
    missing = {}
    for name in given.only:
        if name in peer_environments.PEERS:
            try:
                if given.offline and not peer_environments.made(name, given.environments):
                    missing[name] = "not installed, because of --offline"
                elif not given.offline:
                    peer_environments.make(name, given.environments)
            except peer_environments.NotInstalled as error:
                missing[name] = f"could not be installed: {error}"
    return missing


def take_turns(workers, rounds, seconds=None):
    """Run rounds in which each worker trains once on the same batch. Odd rounds run in reverse, and every two rounds another begins.

    Args:
        workers: the workers.
        rounds: number of rounds.
        seconds: if given, stop after the round in which this much training time is reached.

    Returns:
        Two dictionaries by the worker's name: the seconds of each step, and the message of each worker that stopped.
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
    """Time all workers. Return a result for each, as ``pairs.measure`` does. The first worker is the baseline.

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
    """Target tokens of each timed batch, and a description of the batches."""
    batches = json.loads(job.read_text())["batches"][skipped:]
    targets = [[len(target) for _, target in batch] for batch in batches]
    padded = sum(len(lengths) * max(lengths) for lengths in targets)
    counted = list(map(sum, targets))
    return counted, (
        f"{sum(map(len, targets)) / len(targets):.0f} sentences and {sum(counted) / len(counted):,.0f} target tokens per batch on average,"
        f" {100 * (1 - sum(counted) / padded):.0f} % of target positions padded"
    )


def read_arguments(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    pairs.add_arguments(parser, "peers", pairs=40)
    parser.set_defaults(threads=1)
    parser.add_argument("--data", type=Path, help="the binarised corpus (default: the folder of examples/multi30k.sh)")
    parser.add_argument(
        "--raw", type=Path, help="instead of --data: raw text in files named as Multi30k's, binarised once"
    )
    parser.add_argument("--max-tokens", type=int, default=4096, help="tokens of a batch on each side (default 4096)")
    parser.add_argument(
        "--seconds", type=float, help="stop after the round in which this many seconds of steps are reached"
    )
    parser.add_argument(
        "--precision", choices=["fp32", "bf16"], default="fp32",
        help="bf16: fairseq's --bf16, and autocast in the other toolkits; needs a processor with bf16 instructions",
    )  # fmt: skip
    names = [OURS, FAST, *peer_environments.PEERS]
    parser.add_argument(
        "--only", action="append", choices=names, metavar="NAME",
        help=f"repeatable: only these of {'; '.join(names)}; stock fairseq is always the first",
    )  # fmt: skip
    parser.add_argument(
        "--environments", type=Path, default=Path("runs/peers"),
        help="folder of the other toolkits' environments, created if missing (default runs/peers)",
    )  # fmt: skip
    parser.add_argument(
        "--offline", action="store_true", help="install nothing; toolkits without an environment are not timed"
    )
    parser.add_argument(
        "--tiny", action="store_true", help="a tiny model, to try the command; its times are meaningless"
    )
    parser.add_argument("--dry-run", action="store_true", help="only print the packages and commands")
    given = parser.parse_args(arguments)
    pairs.check_positive(parser, given, ("pairs", "threads", "max_tokens") + ("seconds",) * (given.seconds is not None))
    if given.device != "cpu":
        parser.error("--device cuda: this benchmark only times the CPU")
    if given.warm_up < 2:
        parser.error(f"--warm-up {given.warm_up}: at least 2, because the first steps differ from the others")
    if given.precision == "bf16" and not NATIVE_BF16 & set(pairs.processor_features().split(", ")):
        parser.error("--precision bf16: this processor has no bf16 instructions; choose fp32")
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
    """Print the output of ``--dry-run``."""
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
                Worker(name, describe_arm(given, name), command_of(given, name, job), environment_of(given, name), log)
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
        f"All arms train in {given.precision} on the same {given.pairs} batches of {given.data.parent.name}: {batches}."
        f" The shape is {given.shape}, the recipe {given.recipe}."
        f" The machine's load before the measurement was {load:.2f}."
        f" Instruction sets of the processor: {facts['features']}.\n\n    {facts['command']}"
    )
    result = {"surroundings": facts, "arms": found}
    pairs.write(given.output, result, pairs.markdown(result, COLUMNS, how))
    return result


if __name__ == "__main__":
    main()
