"""``--threads``: the number of threads with which a training runs on a CPU.

The number of threads changes the last bits of sums. Without the flag, torch's number of threads is therefore kept. The flag cannot change
how threads wait for each other, because libgomp reads the settings for waiting (OMP_WAIT_POLICY, GOMP_SPINCOUNT) when torch is loaded.
fairseq-train loads plugins only after torch.
"""

import os

import torch

from ..errors import InputError, whole_number
from ..options.command_options import ThreadOptions
from ..options.for_fairseq.parser import add_flags
from ..options.reading import read

# This environment variable has the same effect as the flag, in fairseq-hydra-train and in processes that a training starts.
THREADS = "FAIRSEQ_RESERVOIR_THREADS"
MOST = 1024  # torch has no limit, and too many threads can crash the process


def add_flag(parser) -> None:
    """Add ``--threads`` to the parser of a training."""
    if "--threads" not in parser._option_string_actions:
        add_flags(parser, ThreadOptions)


def read_flag(flags) -> None:
    """Store the value of ``--threads`` in the environment, so that processes that the training starts can read it.

    Raises:
        InputError: the value is not a number of threads.
    """
    given = read(ThreadOptions, flags).threads
    if given is not None:
        if not given.strip():
            raise InputError(f"--threads {given!r}: is empty; give a number, or remove the flag")
        _number(given)
        os.environ[THREADS] = given


def read_setting() -> int | None:
    """Return the number of threads that the flag or the environment variable sets; None if neither is set.

    Raises:
        InputError: the value is not a number of threads.
    """
    return _number(os.environ.get(THREADS, ""))


def set_threads() -> None:
    """Let torch use the number of threads from ``read_setting``, if there is one."""
    number = read_setting()
    if number:
        torch.set_num_threads(number)


def _number(text):
    text = text.strip()
    number = whole_number(text)
    if text == "auto":
        raise InputError(
            f"--threads auto (or {THREADS}=auto): was removed; give a number, such as 1, which was as fast as auto on a busy machine"
        )
    if text and not (number and number <= MOST):
        raise InputError(f"--threads {text} (or {THREADS}): must be a whole number from 1 to {MOST}")
    return number
