"""``fairseq-reservoir sweep``: many training runs from one grid file."""

import contextlib
import os
import sys
from pathlib import Path

from ..errors import InputError
from ..files import replacing
from .standard_output import writing

HELP = """\
Runs all combinations of a grid file, several at a time, each in its own folder below DIR. Repeat the command to resume: finished runs are
not repeated, and interrupted runs continue. A failed run is marked and does not stop the others. Ctrl-C ends all runs. A run may still be
running, because another sweep runs it or a killed sweep has left it running. The command then waits until the run stops, and resumes it.
The command prints a line for each event and, on a terminal, a live table. `sweep --status DIR` prints the table, for example in another
shell. It only reads files.

You may change the grid file and repeat the command. A changed run continues if it has not trained anything, or if only commands after its
training have changed. Otherwise the sweep is refused. The grid file is YAML:

  command: fairseq-train {DATA} --user-dir fairseq_reservoir --arch reservoir_transformer_study --max-update 700
  axes:                              # flags of the command; each combination is a run
    reservoir-encoder: [LLL, LTLTL]
    lr: [1e-3, 2e-3]
    reservoir-fast-dropout: [yes, no]    # a flag without a value: given or not
    seed: [1, 2]
  environment:                       # axes of environment variables; a single value applies to all runs and is not in their names
    OMP_NUM_THREADS: 1
  arms:                              # one more axis: each name stands for a group of flags
    plain: ''
    layerdrop: --encoder-layerdrop 0.2
  exclude:                           # combinations to leave out
    - {lr: 2e-3, arm: layerdrop}
  defaults:                          # value of {DATA} in a command if there is no environment variable DATA
    DATA: data-bin
  choose: lr                         # the first seed runs every lr, the other seeds only the best lr of each arm
  beyond: 2                          # if an arm's best lr is the smallest or the largest, add the next one, at most twice
  then:                              # commands that run after the first one, in this order
    - fairseq-generate {DATA} --user-dir fairseq_reservoir --path {out}/checkpoint_best.pt --results-path {out}

`choose` takes the value with the lowest validation loss. If the command has --best-checkpoint-metric, `choose` takes the value with the
best score in this metric. A failed training does not count. The other seeds of an arm begin when all its runs of the first seed have ended,
including the runs added by `beyond`. They do not wait for other arms. DIR/choices.txt has the chosen values and their scores. It notes if a
chosen value is the smallest or the largest one. `beyond` is for learning rates: the ratio of the last two values determines the next one,
so 1.6e-2 follows 4e-3 and 8e-3. An environment variable DATA replaces {DATA}. Its value is split into words as in a command.

{out} is the folder of the run. fairseq-train uses it as --save-dir. The folder's name consists of the values of all lists, with the seed
last. An example is plain-LLL-lr1e-3-no-reservoir-fast-dropout-1. The folder contains `command`, `state` (waiting, running, done or failed)
and a log of each command, here train.log and generate.log. Commands run in the folder where the sweep was started. A run is reported and
skipped if its folder or one of these files is a link or cannot be read, or if `lock` or a log has a second name (a hard link, as `cp -al`
makes them).
"""
# Flags of Slurm jobs, without --slurm-: (default, smallest value).
_SLURM = {"partition": (None, None), "time": (1440, 1), "gpus": (1, 0), "cpus": (4, 1)}


def add_parser(commands) -> None:
    parser = commands.add_parser(
        "sweep",
        help="run the trainings of a grid file, several at a time; resumable",
        description=HELP,
    )
    parser.add_argument("grid", metavar="GRID", nargs="?", help="the grid file")
    parser.add_argument("--out", metavar="DIR", help="parent folder of the runs")
    parser.add_argument(
        "--status", metavar="DIR", help="only print the table of a sweep's runs: update, losses, BLEU and time left"
    )
    parser.add_argument(
        "--jobs", type=int, metavar="N",
        help="number of runs at a time (default: 1; with --slurm: all). Runs share the cores. Each run gets one of the GPUs, in turn",
    )  # fmt: skip
    parser.add_argument("--dry-run", action="store_true", help="only print the runs, their states and their commands")
    parser.add_argument("--retry-failed", action="store_true", help="run failed runs again")
    parser.add_argument(
        "--slurm", action="store_true", help="submit each run as a Slurm job, and wait for all jobs (needs submitit)"
    )
    parser.add_argument("--slurm-partition", metavar="NAME", help="partition of the jobs")
    parser.add_argument(
        "--slurm-time",
        type=int,
        metavar="MINUTES",
        help="time limit of a job; a job that reaches it is queued again (default: 1440)",
    )
    parser.add_argument("--slurm-gpus", type=int, metavar="N", help="GPUs of a job (default: 1)")
    parser.add_argument("--slurm-cpus", type=int, metavar="N", help="cores of a job (default: 4)")
    parser.set_defaults(run=run)


def run(known, fairseq_flags):
    try:
        return _run(known)
    except BrokenPipeError:
        with writing():
            raise


def _run(known):
    from ..studies.sweep import local, slurm
    from ..studies.sweep.grid import read_grid

    if known.status is not None:
        return _status(known)
    for name, value in (("GRID", known.grid), ("--out", known.out)):
        if value is None:
            raise InputError(f"{name}: is missing; use sweep GRID --out DIR, or sweep --status DIR")
    if known.jobs is not None and known.jobs < 1:
        raise InputError(f"--jobs {known.jobs}: must be at least 1")
    options = _slurm_options(known)
    runs, choices = read_grid(known.grid, known.out)
    for each in [*runs, *(run for choice in choices for others in choice.others.values() for run in others)]:
        each.check()
    sweep = _Sweep(runs, choices, known)
    if known.dry_run:
        return "\n".join(_dry_run(runs, sweep.decisions))
    executor = slurm.executor(known.out, **options) if known.slurm else None
    sweep.add(list(runs), "runs of the first seed" if choices else "runs")
    for each in [run for run in runs if run.is_due(known.retry_failed)][:1]:
        each.is_locked()  # raises an error on a file system without locks, before anything runs
    sweep.next_runs()
    arguments = (known.retry_failed, sweep.end, sweep.next_runs, sweep.display)
    if executor:
        finished = slurm.run_all(list(runs), executor, known.jobs, *arguments)
    else:
        finished = local.run_all(list(runs), known.jobs or 1, *arguments)
    sweep.display.close()
    table = "\n".join([*sweep.table(), *sweep.decisions.lines, *map(str, sweep.errors)])
    if finished and sweep.is_done():
        return table
    sweep.display.say(table)
    sys.exit(1 if finished else 130)


def _status(known):
    from ..studies.sweep.table import status

    others = ("grid", "out", "jobs", "dry_run", "retry_failed", "slurm", *(f"slurm_{name}" for name in _SLURM))
    if any(vars(known)[name] not in (None, False) for name in others):
        raise InputError("--status DIR: takes no other argument")
    return status(known.status)


class _Sweep:
    """State of the command: the runs of a sweep, and the display that prints its events.

    Args:
        runs: the runs of the grid file. Runs that a choice adds are appended to this list.
        choices: see ``read_grid``.
        known: the command's arguments.

    Attributes:
        minutes: duration of each run that has ended, by name.
        errors: errors of runs that were added during the sweep. The other runs continue.
        display: prints the events and the live table.
    """

    def __init__(self, runs, choices, known):
        from ..studies.sweep.choose import Decisions
        from ..studies.sweep.display import Display

        self.runs, self.out, self.retry_failed = runs, known.out, known.retry_failed
        self.minutes: dict[str, float] = {}
        self.errors: list[InputError] = []
        self.due = 0
        self._written = None  # the number in the file "further"
        self.decisions = Decisions(choices, _score, self._is_awaited)
        self.display = Display(writing, known.jobs or (len(runs) if known.slurm else 1), self._further)

    def _is_awaited(self, run):
        return run.is_due(self.retry_failed) and run.name not in self.minutes

    def _further(self):
        """Return the number of runs that will be added after open choices are decided. These runs have the other seeds."""
        return sum(len(next(iter(choice.others.values()), [])) for choice in self.decisions.open)

    def add(self, runs, what: str) -> None:
        """Create the folders of runs, and print how many runs are due."""
        mended = {run.name: state for run in runs if (state := run.mended())}
        for each in runs:
            each.prepare()
        due = sum(each.is_due(self.retry_failed) for each in runs)
        self.due += due
        self.display.add(runs)
        self.display.say(f"{len(runs)} {what} in {self.out}, {due} of them to do")
        for each in runs:
            if each.state[0] == "damaged":
                self.display.say(f"{each.name}: {each.describe()}, left out")
            elif each.name in mended:
                self.display.say(
                    f"{each.name}: continues with its changed commands, because nothing that was trained depends on the change"
                )

    def end(self, run, minutes: float) -> None:
        """Print the result of a run that has ended."""
        self.minutes[run.name] = minutes
        score = _score(run) if run.state[0] == "done" else None
        result = f", best valid {score.name} {score.value:.5g}" if score else ""
        self.display.end(run, minutes, f"[{len(self.minutes)}/{self.due}]", result)

    def table(self) -> list[str]:
        """Return the lines of the final table."""
        from ..studies.sweep.table import lines_of

        return lines_of(self.display.last_rows(self.minutes), with_minutes=True)

    def next_runs(self) -> list:
        """Return the runs that choices have just added. Print the new choices, and write all choices to choices.txt."""
        from ..studies.sweep.display import collecting
        from ..studies.sweep.table import FURTHER

        before, decided = len(self.runs), len(self.decisions.made)
        for line, more in self.decisions.next_runs():
            self.display.say(line)
            with collecting(self.errors, self.display.say):
                for each in more:
                    each.check()
                if more:
                    self.add(more, "more runs")
                self.runs.extend(more)
        with collecting(self.errors, self.display.say):
            if len(self.decisions.made) > decided:
                _write_lines(self.decisions.made.values(), Path(self.out) / "choices.txt")
            if self.decisions.choices and self._further() != self._written:
                self._written = self._further()
                _write_lines([self._written], Path(self.out) / FURTHER)
        return self.runs[before:]

    def is_done(self) -> bool:
        """Return whether all runs are done and all choices made, without an error."""
        undecided = any(
            choice.others and choice.best(choice.scores(_score)) is None for choice in self.decisions.choices
        )
        done = all(each.state[0] == "done" for each in self.runs)
        return done and not (self.errors or self.decisions.open or undecided)


def _dry_run(runs, decisions):
    """Yield the lines of --dry-run: each run, and each choice."""
    for _, more in decisions.next_runs():
        for each in more:
            each.check()
        runs += more
    for each in runs:
        mended = ", has new commands" if each.mended() else ""
        yield f"{each.name}: {each.describe()}{mended}\n{_indented(each.commands)}"
    for choice in decisions.choices:
        first = next(iter(choice.others.values()), [])
        if choice not in decisions.open:
            yield decisions.made[choice.name]
        elif first:
            yield (
                f"{choice.name}: once the runs of the first seed have determined {choice.axis},"
                f" {len(first)} more runs follow with the other seeds"
            )


def _write_lines(lines, path):
    with replacing(str(path), "--out {path}: cannot be written ({why})") as temporary:
        temporary.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def _score(run):
    """Return the best validation score in the log of a run; None if there is none."""
    from ..studies.report import metrics
    from ..studies.report.measures import measure_run, scored
    from ..studies.report.runs import find_runs
    from ..studies.sweep.choose import Score

    with contextlib.suppress(InputError):
        own = os.path.realpath(run.folder)
        found = next((log for log in find_runs([run.folder]) if str(log.folder) == own), None)
        if found is None:
            return None
        metric = metrics.choose(str(found.configuration.get("checkpoint.best_checkpoint_metric", "loss")), [found])
        if scored(found, metric):
            return Score(measure_run(found, metric).best, metric.name, metric.higher)
    return None


def _slurm_options(known):
    """Return the values of --slurm-time, --slurm-gpus and so on, by the name after ``slurm_``."""
    options = {}
    for name, (default, least) in _SLURM.items():
        value = vars(known)[f"slurm_{name}"]
        if value is not None and not known.slurm:
            raise InputError(f"--slurm-{name} {value}: has no effect without --slurm")
        if isinstance(value, int) and value < least:
            raise InputError(f"--slurm-{name} {value}: must be at least {least}")
        options[name] = default if value is None else value
    return options


def _indented(text):
    return "".join(f"  {line}\n" for line in text.splitlines()).rstrip("\n")
