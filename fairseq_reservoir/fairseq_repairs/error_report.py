"""Shows a mistake of the user's as one line, when one of the fairseq commands was running."""

import dataclasses
import sys
from os.path import commonprefix
from pathlib import Path

from fairseq import options
from fairseq.models import MODEL_DATACLASS_REGISTRY
from fairseq.registry import REGISTRIES
from fairseq.tasks import TASK_DATACLASS_REGISTRY
from omegaconf import MISSING

from ..errors import InputError, check_words
from .repair import repair, wrap


def find_input_error(error):
    """Return the first ``InputError`` in the chain of causes and contexts of ``error``, or None."""
    seen, waiting = set(), [error]
    while waiting:
        link = waiting.pop(0)
        if link is None or id(link) in seen:
            continue
        if isinstance(link, InputError):
            return link
        seen.add(id(link))
        waiting += [link.__cause__, link.__context__]
    return None


def fairseq_command() -> str | None:
    """Return the name of the running fairseq command, or None in any other program.

    The console scripts are named ``fairseq-*``; ``python -m fairseq_cli.eval_lm`` is ``fairseq-eval-lm``.
    """
    program = Path(sys.argv[0]) if sys.argv else Path()
    if program.parent.name == "fairseq_cli":
        return "fairseq-" + program.stem.replace("_", "-")
    return program.stem if program.stem.startswith("fairseq-") else None


@repair("flag-errors")
def refuse_flags_in_one_line():
    """Let a fairseq command answer a flag that argparse refuses in one line too.

    argparse prints the 150 lines of fairseq's usage before it says what is wrong.
    Functions that parse arguments without being a command keep argparse's way.
    """

    def parse_args_and_arch(original, parser, input_args=None, *args, **kwargs):
        if fairseq_command() and "error" not in vars(parser):
            parser.error = raise_as_mistake
        check_words(sys.argv[1:] if input_args is None else input_args)
        parsed = original(parser, input_args, *args, **kwargs)
        if fairseq_command() and not kwargs.get("suppress_defaults"):
            refuse_missing(parsed[0] if isinstance(parsed, tuple) else parsed)
        return parsed

    wrap(options, "parse_args_and_arch", parse_args_and_arch)


def raise_as_mistake(message):
    """Raise argparse's message, such as ``argument --encoder-layers: invalid int value: 'x'``, as an ``InputError``."""
    if message.endswith(f"value: {MISSING!r}"):  # a default that stands for none
        raise InputError(f"{message.removeprefix('argument ').split(':')[0]}: is not given, and has no default")
    raise InputError(message.removeprefix("argument ") + whose(message))


def refuse_missing(flags):
    """Refuse a choice, such as of ``--lr-scheduler``, without a flag of its own that has no default."""
    for choice, of in REGISTRIES.items():
        chosen = getattr(flags, choice, None)
        for field in dataclasses.fields(of["dataclass_registry"].get(chosen, _Nothing)):
            if field.default == MISSING and getattr(flags, field.name, None) in (None, MISSING):
                names = [name.replace("_", "-") for name in (field.name, choice)]
                raise InputError(f"--{names[0]}: is not given, and --{names[1]} {chosen} needs it")
    if getattr(flags, "lr_scheduler", None) == "polynomial_decay" and flags.total_num_update is None:
        # Its default is --max-update, and cannot be read from there: "Error merging override".
        if not flags.max_update:
            raise InputError("--total-num-update: is not given, and --lr-scheduler polynomial_decay needs it")
        flags.total_num_update = flags.max_update


@dataclasses.dataclass
class _Nothing:
    pass


def whose(message):
    """Of flags that are unrecognized because another choice has them, which: ``; --momentum is of --optimizer nag``, say."""
    if not message.startswith("unrecognized arguments:"):
        return ""
    registries = {name.replace("_", "-"): of["dataclass_registry"] for name, of in REGISTRIES.items()}
    registries |= {"arch": MODEL_DATACLASS_REGISTRY, "task": TASK_DATACLASS_REGISTRY}
    found = ""
    for flag in (word.split("=")[0] for word in message.split() if word.startswith("--")):
        field = flag[2:].replace("-", "_")
        for choice, registry in registries.items():
            owners = [name for name, of in registry.items() if field in fields_of(of)]
            owners.sort(key=lambda name: (-len(commonprefix([name, field])), len(name)))
            if owners:
                found += f"; {flag} is of --{choice} {', '.join(owners[:3])}{' and others' if len(owners) > 3 else ''}"
    return found


def fields_of(dataclass):
    """The names of its fields, without those whose value is another group's, such as ``${optimization.lr}``."""
    return {f.name for f in dataclasses.fields(dataclass) if not str(f.default).startswith("${")}


@repair("input-errors")
def report_input_errors():
    """Let the fairseq commands end with one line and status 2 on an ``InputError``.

    Plain fairseq shows a mistyped flag or a missing file as a traceback of its own internals. Everything else, and
    every program that is not a fairseq command, keeps the hook that was there before.
    """

    def excepthook(previous, kind, error, traceback):
        mistake, command = find_input_error(error), fairseq_command()
        if mistake is None or command is None:
            previous(kind, error, traceback)
            return
        print(f"{command}: error: {mistake}", file=sys.stderr)
        # The interpreter honours SystemExit here, and so runs its usual farewell with the status that argparse uses.
        # In a process group torch's hook stands around this one and would lose the line: there the status is 1.
        if getattr(sys.excepthook, "hook", None) is excepthook:
            raise SystemExit(2)

    wrap(sys, "excepthook", excepthook)
