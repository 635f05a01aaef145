"""Steps of a run: its commands in order, and the names of the steps and of their logs. The file ``command`` lists the commands."""

import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

_VARIABLE = re.compile(r"[A-Za-z_]\w*=")


@dataclass(frozen=True)
class Step:
    """A command of a run, and the log file of its output."""

    name: str
    words: tuple[str, ...]
    log: Path


def make_steps(commands: Sequence[Sequence[str]], folder: Path) -> tuple[Step, ...]:
    """Return the steps of a run in ``folder``. Each command is a list of words, in which {out} stands for the folder.

    A step and its log are named after the program. Only the log of fairseq-reservoir is named after the subcommand. If several steps have
    the same name, a number is appended from the second one on: generate-2.
    """
    named = zip(commands, _numbered(map(_program, commands)), _numbered(map(_log_stem, commands)))
    return tuple(
        Step(
            step,
            tuple(word.replace("{out}", str(folder)) for word in command),
            folder / f"{stem}{_log_suffix(command)}",
        )
        for command, step, stem in named
    )


def commands_in(text: str) -> list[list[str]]:
    """Return the words of each command in the text of a file ``command``, including variables.

    Return [] if the text cannot contain commands: it contains a zero byte, or its quotes are not balanced.
    """
    if "\0" in text:
        return []
    lexer = shlex.shlex(text, posix=True, punctuation_chars="\n")
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t", True, ""
    found: list[list[str]] = [[]]
    try:
        for word in lexer:
            if word.strip("\n") or not word:
                found[-1].append(word)
            else:
                found.append([])
    except ValueError:  # a quote without its end
        return []
    return [words for words in found if words]


def without_variables(words: Sequence[str]) -> list[str]:
    """Remove environment variables, such as ``OMP_NUM_THREADS=1``, from the beginning of a command."""
    number = next((i for i, word in enumerate(words) if not _VARIABLE.match(word)), 0)
    return list(words[number:])


def _program(command):
    """Return the name of a step: the program without the prefix "fairseq-"."""
    return Path(command[0]).name.removeprefix("fairseq-")


def _log_stem(command):
    """Return the name of a step's log: the program, or the subcommand of fairseq-reservoir."""
    program, subcommand = _program(command), "".join(command[1:2])
    return subcommand if program == "reservoir" and re.fullmatch(r"[a-z][a-z-]*", subcommand) else program


def _log_suffix(command):
    """Return the ending of a step's log: ``.log`` for commands of fairseq, else ``.out``.

    The report skips ``.out`` files, because the log of a script repeats the log of the training that the script starts.
    """
    return ".log" if command[0].startswith("fairseq-") else ".out"


def _numbered(names: Iterable[str]):
    """Yield the names. Append -2, -3, ... to the second, third, ... occurrence of a name."""
    found: list[str] = []
    for name in names:
        found.append(name)
        yield f"{name}-{found.count(name)}" if found.count(name) > 1 else name
