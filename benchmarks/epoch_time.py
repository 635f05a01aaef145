"""Time whole epochs of fairseq-train for several arms, including data loading, padding, validation and saving.

Each run is a separate process. The arms take turns for ``--pairs`` rounds, every other round in reverse order. Tables are updated
after each round (see ``pairs``). The time from the log line "begin training epoch" to "done training" counts. The start of the
process has its own column. An arm is given by its flags of fairseq-train without those of the recipe. Environment variables may
precede them, as in

  python benchmarks/epoch_time.py --raw FOLDER --arm "stock: --arch transformer" \\
      --arm "ours: FAIRSEQ_RESERVOIR_KEPT_MIB=256 --user-dir fairseq_reservoir --arch transformer"

``--busy 0,1`` runs every arm both alone and next to a process that keeps a core busy. To compare how threads wait:

  python benchmarks/epoch_time.py --corpus quickstart --busy 0,1 --nice 10 --own-session --updates 24 --pairs 3 \\
      --arm "spinning: --user-dir fairseq_reservoir --arch reservoir_transformer_study --reservoir-encoder LFLFL" \\
      --arm "passive: OMP_WAIT_POLICY=passive --user-dir fairseq_reservoir --arch reservoir_transformer_study --reservoir-encoder LFLFL"

Corpora and flags are those of the recipes examples/multi30k.sh and examples/quickstart.sh (4,000 pieces, batches of 2,048
tokens). "Same weights as baseline" compares the weights in the last checkpoints bit for bit.
"""

import argparse
import contextlib
import hashlib
import os
import re
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks import models, pairs  # noqa: E402

SHAPE = (
    "--encoder-embed-dim 256 --encoder-ffn-embed-dim 1024 --encoder-layers 4 --decoder-layers 2"
    " --encoder-attention-heads 4 --decoder-attention-heads 4"
)
OURS = f"--user-dir fairseq_reservoir --arch transformer {SHAPE}"
DEFAULT_ARMS = (
    f"stock fairseq: --arch transformer {SHAPE}",
    f"with the plugin: {OURS}",
    # Drops the same sentences as stock fairseq, so that the weights are equal bit for bit.
    f"with the plugin, last batch as in stock: FAIRSEQ_RESERVOIR_WITHOUT=last-batch {OURS}",
)
TIED = "--share-all-embeddings"
RECIPE = (
    "--criterion label_smoothed_cross_entropy --label-smoothing 0.1 --optimizer adam --adam-betas '(0.9, 0.98)'"
    " --lr-scheduler inverse_sqrt --no-epoch-checkpoints --num-workers 0 --log-format json --log-interval 20"
)
# Of each recipe: folder of the binarised corpus, number of pieces, training flags.
CORPORA = {
    "multi30k": ("runs/multi30k/bin", 6000, "--lr 1e-3 --warmup-updates 800 --dropout 0.2 --max-tokens 4096"),
    "quickstart": (
        "runs/quickstart/homeassistant-en-de/data",
        4000,
        "--lr 2e-3 --warmup-updates 400 --dropout 0.1 --max-tokens 2048",
    ),
}
CUT = (
    "runs=$1 data=$2 root=$PWD; set --; . examples/common.sh epoch_time; . examples/translation.sh;"
    ' cut_and_binarise "$runs/bin" en de "$pieces" --joined-dictionary'
)
COLUMNS = (
    ("seconds of the epochs", "seconds", ".1f"),
    ("seconds of the start", "start", ".1f"),
    ("CPU seconds", "cpu_seconds", ".1f"),
    ("page faults", "faults", ",.0f"),
    ("peak resident MiB", "peak_mib", ",.0f"),
    ("same weights as baseline", "same_bits", ""),
)


class Arm:
    """A command line of fairseq-train that can be run repeatedly.

    Args:
        name: name in the table.
        text: environment variables, followed by flags.
        given: options of the benchmark's command line.
        busy: number of busy processes during each run.
    """

    def __init__(self, name, text, given, busy=0):
        self.name, self.flags, self.runs, self.busy, self.nice = name, text, [], busy, given.nice
        self.own_session = given.own_session
        words = shlex.split(text)
        count = next((i for i, word in enumerate(words) if not re.match(r"[A-Za-z_]\w*=", word)), len(words))
        self.environment = os.environ | {"PYTHONPATH": str(pairs.ROOT), "PYTHONWARNINGS": "ignore"}
        if given.threads:
            self.environment["OMP_NUM_THREADS"] = str(given.threads)
        self.environment |= dict(word.split("=", 1) for word in words[:count])
        device = ["--cpu"] if given.device == "cpu" else []
        until = ["--max-epoch", str(given.epochs)] + (["--max-update", str(given.updates)] if given.updates else [])
        program = str(Path(sys.executable).parent / "fairseq-train")
        recipe = shlex.split(f"{recipe_of(given)} --seed {given.seed}")
        self.command = [program, str(given.data), *recipe, *device, *until, *words[count:]]

    def step(self):
        """Train from the start in a new process. Return the seconds of its epochs."""
        folder = tempfile.mkdtemp(prefix="epoch_time-")
        try:
            with busy_processes(self.busy, self.nice, self.own_session):
                self.runs.append(run([*self.command, "--save-dir", folder], self.environment))
            self.runs[-1]["weights"] = weights_of(Path(folder, "checkpoint_last.pt"))
        finally:
            shutil.rmtree(folder)
        return self.runs[-1]["seconds"]

    @property
    def facts(self):
        """Medians over the runs. ``weights`` is None if the runs ended with different weights."""
        medians = {
            name: statistics.median(run[name] for run in self.runs)
            for name in ("start", "cpu_seconds", "faults", "peak_mib")
        }
        weights = {run["weights"] for run in self.runs}
        return medians | {"weights": weights.pop() if len(weights) == 1 else None}


def recipe_of(given):
    """Flags that all arms share."""
    return " ".join([*([] if given.untied else [TIED]), RECIPE, CORPORA[given.corpus][2]])


def run(command, environment):
    """Run a training. Return its seconds before and between both log lines, and its resource usage.

    Raises:
        SystemExit: the training failed or did not finish. The message has its last line of output.
    """
    began = time.perf_counter()
    process = subprocess.Popen(
        command,
        cwd=pairs.ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    first = last = None
    line = ""
    for line in process.stdout:
        if first is None and "begin training epoch" in line:
            first = time.perf_counter()
        elif "done training in" in line:
            last = time.perf_counter()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode or None in (first, last):
        sys.exit(f"epoch_time: {shlex.join(command)}: status {process.returncode}: {line.strip()}")
    return {"seconds": last - first, "start": first - began, "cpu_seconds": used.ru_utime + used.ru_stime,
            "faults": used.ru_minflt, "peak_mib": used.ru_maxrss / 2**10}  # fmt: skip


def weights_of(checkpoint):
    """Hash of all tensors in a checkpoint that fairseq's ``transformer`` also has, with their names."""
    tensors, digest = torch.load(checkpoint, weights_only=False)["model"], hashlib.sha256()
    for name in sorted(name for name in tensors if name != "reservoir_version"):
        digest.update(name.encode() + tensors[name].cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]


@contextlib.contextmanager
def busy_processes(count, nice=0, own_session=False):
    """Keep ``count`` cores busy with processes of this priority while the body runs.

    Args:
        own_session: start each process in a new session, as another terminal does. Linux (sched_autogroup) shares the cores
            evenly between sessions, so that the priority only has an effect within a session.
    """
    program = f"import os; os.nice({nice})\nwhile True: pass"
    spinning = [subprocess.Popen([sys.executable, "-c", program], start_new_session=own_session) for _ in range(count)]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


def cut(given):
    """Split and binarise the corpus of ``--raw`` as in the recipe, into a folder next to the output. Reused by later runs."""
    folder = given.output.parent / f"epoch_time-{given.corpus}"
    pieces = CORPORA[given.corpus][1]
    ended = subprocess.run(
        ["bash", "-c", CUT, "epoch_time", folder.absolute(), given.raw.absolute()],
        cwd=pairs.ROOT, env=os.environ | {"pieces": str(pieces)}, capture_output=True, text=True,
    )  # fmt: skip
    if ended.returncode:
        sys.exit(f"epoch_time: --raw {given.raw}: {(ended.stderr or ended.stdout).strip().splitlines()[-1]}")
    return (folder / "bin").absolute()


def read_arguments(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    pairs.add_arguments(parser, "epoch_time", pairs=7)
    parser.set_defaults(warm_up=0)
    add_corpus_flags(parser)
    add_load_flags(parser)
    add_arm_flags(parser)
    given = parser.parse_args(arguments)
    check_arguments(parser, given)
    if given.raw is None:
        given.data = (given.data or pairs.ROOT / CORPORA[given.corpus][0]).absolute()
        if not given.data.is_dir():
            parser.error(
                f"--data {given.data}: no such folder; examples/{given.corpus}.sh makes it, or give --raw FOLDER"
            )
    return given


def add_corpus_flags(parser):
    parser.add_argument(
        "--corpus", choices=CORPORA, default="multi30k", help="recipe: training flags and number of pieces"
    )
    parser.add_argument("--data", type=Path, help="the binarised corpus (default: the folder of the recipe)")
    parser.add_argument(
        "--raw", type=Path, help="instead of --data: raw text in files named as Multi30k's, binarised once"
    )
    parser.add_argument("--epochs", type=int, default=1, help="epochs of every run (default 1)")
    parser.add_argument("--updates", type=int, help="end every run after this many updates, with validation and saving")
    parser.add_argument(
        "--untied", action="store_true", help=f"do not set {TIED}; flags of the arms choose shared embeddings"
    )


def add_load_flags(parser):
    """Add the flags of the processes that run beside a training."""
    parser.add_argument(
        "--busy",
        type=lambda text: [int(number) for number in text.split(",")],
        default=[0],
        metavar="N[,N]",
        help="number of busy processes during a run (default 0); with several numbers, each arm runs with each of them",
    )
    parser.add_argument(
        "--nice", type=int, default=0, help="priority of the busy processes, 0 to 19 (default 0; 19 is the lowest)"
    )
    parser.add_argument(
        "--own-session",
        action="store_true",
        help="start busy processes in new sessions, as another terminal does; Linux then ignores --nice",
    )


def add_arm_flags(parser):
    parser.add_argument(
        "--arm",
        action="append",
        type=pairs.name_and_flags,
        metavar='"NAME: [VARIABLE=VALUE ...] FLAGS"',
        help="repeat; the first is the baseline",
    )
    parser.add_argument(
        "--promise", metavar="NAME", help="fail unless the lower end of this arm's interval is at most --at-most"
    )
    parser.add_argument("--at-most", type=float, default=0.92, help="default 0.92")


def check_arguments(parser, given):
    """Set the default arms, and end the program with an error if a value is not allowed."""
    if given.data and given.raw:
        parser.error("--raw: give it or --data, not both")
    given.arm = given.arm or list(map(pairs.name_and_flags, DEFAULT_ARMS))
    positive = (
        ("pairs", "epochs") + ("updates",) * (given.updates is not None) + ("threads",) * (given.threads is not None)
    )
    pairs.check_arms(parser, given, positive)
    if min(given.busy) < 0:
        parser.error(f"--busy {min(given.busy)}: at least 0")
    if not 0 <= given.nice <= 19:
        parser.error(f"--nice {given.nice}: 0 to 19")
    if given.promise and len(given.busy) > 1:
        parser.error("--promise: only with one number for --busy")


def main(arguments=None):
    given = read_arguments(arguments)
    models.import_plugin(given.threads)
    if given.raw:
        given.data = cut(given)
    arms = [
        Arm(f"{name}, beside {busy}" if len(given.busy) > 1 else name, flags, given, busy)
        for busy in given.busy
        for name, flags in given.arm
    ]
    found = pairs.measure_in_rounds(arms, given.pairs, given.warm_up, lambda *so_far: report(given, *so_far, arguments))
    return report(given, found, given.pairs, arguments, show=True)


def report(given, found, rounds, arguments, show=False):
    """Write the results of ``rounds`` rounds and return them. If ``show``, also print them."""
    for arm in found:
        arm["same_bits"] = "yes" if arm["weights"] and arm["weights"] == found[0]["weights"] else "no"
    length = "one epoch" if given.epochs == 1 else f"{given.epochs} epochs"
    limit = f" (at most {given.updates} updates)" if given.updates else ""
    facts = pairs.surroundings(given.device, rounds) | {
        "corpus": given.corpus, "length": length + limit, "busy": given.busy, "nice": given.nice,
        "own_session": given.own_session, "recipe": recipe_of(given),
        "features": pairs.processor_features(), "command": shlex.join(sys.argv if arguments is None else list(map(str, arguments))),
    }  # fmt: skip
    result = {"surroundings": facts, "arms": found}
    if given.promise:
        result["promise"] = pairs.check_promise(found, given.promise, given.at_most)
    sessions = "in new sessions" if given.own_session else "in the same session"
    how = (
        f"A run is {length} of {given.corpus}{limit} in its own process."
        " The time is measured from the start of the first epoch to the last save."
        f" Beside it run {' or '.join(map(str, given.busy))} busy processes with priority {given.nice}, {sessions}.\n"
        'The column "same weights as baseline" compares the final weights bit for bit.'
        f" Instruction sets of the processor: {facts['features']}.\n\n    {facts['command']}\n    {facts['recipe']}"
    )
    pairs.write(given.output, result, pairs.markdown(result, COLUMNS, how), show)
    return result


if __name__ == "__main__":
    result = main()
    sys.exit(0 if result.get("promise", {"holds": True})["holds"] else 1)
