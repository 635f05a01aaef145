"""``--threads``: how many threads a training uses, or as many as other processes leave free.

The number changes the last bits of sums, so nothing here happens unasked. How threads wait for each other is left alone: their
library, libgomp, reads that (OMP_WAIT_POLICY, GOMP_SPINCOUNT) when torch is loaded, which fairseq-train does before any plugin.
"""

import logging
import os
import time

import torch

from ..errors import InputError, whole_number
from ..options.for_fairseq.parser import add_flags
from ..options.reading import read
from ..options.thread_options import ThreadOptions

logger = logging.getLogger(__name__)

# An environment variable that says the same as the flag, for fairseq-hydra-train too and for the processes that a training starts.
THREADS = "FAIRSEQ_RESERVOIR_THREADS"
AUTO = "auto"
MOST = 1024  # torch starts as many as it is told, or dies of it
PERIOD = 2.0  # seconds between two looks at the machine
# A core is free if others use less than this of it: threads wait for the slowest of them.
SPARE = 0.25


def read_flag(parse_args_and_arch, parser, *args, **kwargs):
    """Add ``--threads`` to the parser of a training, and hand on what it says."""
    options = parser._option_string_actions
    if "--max-update" in options and "--threads" not in options:
        add_flags(parser, ThreadOptions)
    parsed = parse_args_and_arch(parser, *args, **kwargs)
    given = read(ThreadOptions, parsed[0] if isinstance(parsed, tuple) else parsed).threads
    if given is not None:
        if not given.strip():
            raise InputError(f"--threads {given!r}: is empty; give {AUTO} or a number, or leave it out")
        _number(given)
        os.environ[THREADS] = given
    return parsed


def point_to_help(parse_args_and_arch, parser, *args, **kwargs):
    """fairseq's ``--help`` of a training has no flag of a model; say at its end where ours are."""
    if "--max-update" in parser._option_string_actions:
        parser.epilog = "Flags of layers, freezing and masks: fairseq-reservoir plan --help"
    return parse_args_and_arch(parser, *args, **kwargs)


def asked() -> int | str | None:
    """A number of threads, ``auto``, or None if nobody has asked.

    Raises:
        InputError: it is neither, or the machine does not say how busy it is.
    """
    return _number(os.environ.get(THREADS, ""))


def _number(text):
    text = text.strip()
    number = whole_number(text)
    if text == AUTO:
        if cores_busy() is None:
            raise InputError("--threads auto: only Linux says in /proc/stat how busy its cores are; give a number")
        return text
    if text and not (number and number <= MOST):
        raise InputError(f"--threads {text} (or {THREADS}): must be {AUTO} or a whole number from 1 to {MOST}")
    return number


def set_threads(trainer) -> None:
    """Set the number of threads before an update, as ``--threads`` says."""
    if not hasattr(trainer, "thread_watch"):
        found = asked()
        trainer.thread_watch = Watch() if found == AUTO else None
        if isinstance(found, int):
            torch.set_num_threads(found)
    if trainer.thread_watch is not None:
        trainer.thread_watch.look()


class Watch:
    """Gives torch as many threads as there are free cores, and never more than it had.

    What others use is what all cores do without what this process does. A thread is given back at once, and taken only if two looks in
    a row say so.
    """

    def __init__(self):
        self.most, self.cores = torch.get_num_threads(), len(os.sched_getaffinity(0))
        self.wanted = self.most
        self.seen = self.now()
        logger.info("threads: up to %d, as many as other processes leave cores free", self.most)

    @staticmethod
    def now() -> tuple[float, float, float]:
        """Seconds on the clock, of all cores that this process may use, and of this process."""
        return time.perf_counter(), cores_busy() or 0.0, time.process_time()

    def look(self) -> None:
        if time.perf_counter() - self.seen[0] < PERIOD:
            return
        seen = self.now()
        passed, busy, own = (new - old for new, old in zip(seen, self.seen))
        self.seen, others = seen, max(0.0, (busy - own) / passed)
        free = threads_for(self.cores, others, self.most)
        using, before, self.wanted = torch.get_num_threads(), self.wanted, free
        if free < using or using < free <= before:
            torch.set_num_threads(free)
            logger.info(
                "threads: %d in place of %d; other processes keep %.1f of %d cores busy",
                free,
                using,
                others,
                self.cores,
            )


def threads_for(cores: int, others: float, most: int) -> int:
    """From 1 to ``most``: the cores that ``others``, a number of busy cores, leave free."""
    return max(1, min(most, int(cores - others + SPARE)))


def cores_busy() -> float | None:
    """Seconds that the cores of this process have worked for anybody since the machine started; None without /proc/stat."""
    try:
        with open("/proc/stat") as stat:
            lines = [line.split() for line in stat if line.startswith("cpu")]
        usable = {f"cpu{core}" for core in os.sched_getaffinity(0)}
    except (OSError, AttributeError):
        return None
    # user nice system idle iowait irq softirq steal: neither idle nor waiting for a disk
    counted = sum(sum(map(int, words[1:4] + words[6:9])) for words in lines if words[0] in usable)
    return counted / os.sysconf("SC_CLK_TCK")
