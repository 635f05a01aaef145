"""Shows a mistake of the user's as one line, when one of the fairseq commands was running."""

import errno
import os
import re
import sys
from argparse import ArgumentTypeError
from functools import partial
from pathlib import Path

from fairseq import models, options, utils
from fairseq.dataclass import utils as dataclass_utils
from omegaconf import MISSING

from ..errors import InputError, check_arguments, flag_of
from .choices import refuse_missing, whose
from .repair import APPLIED, repair, wrap

# What stands for the folder of data on a command line of ours that builds a model without any.
NO_DATA = "no-data"


def find_input_error(error):
    """Return the first ``InputError`` in the chain of causes and contexts of ``error``, or that of a file the system refused, or None."""
    mistake = _mistake_in_chain(error)
    return _error_of_a_file(error) if mistake is None else mistake


def _mistake_in_chain(error):
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


# Errors of a file that a user can name, open or write differently. A full disk and the like are not among them.
_OF_FILES = (
    errno.ENOENT,
    errno.EACCES,
    errno.EPERM,
    errno.EROFS,
    errno.EISDIR,
    errno.ENOTDIR,
    errno.ENAMETOOLONG,
    errno.ELOOP,
    errno.ENXIO,
)


def _error_of_a_file(error):
    """The ``InputError`` for a file that the system refused, or None. Only explicit causes count, because a context may be unrelated."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in _OF_FILES and error.filename not in (None, ""):
            name = os.fsdecode(error.filename)
            return InputError(f"{name}: {error.strerror}") if error.errno != errno.ENOENT or _is_given(name) else None
        error = error.__cause__
    return None


def _is_given(name):
    """Whether a name is that of a file which the user may have given. Not so ``ninja``, which torch looks for while it compiles."""
    words = sys.argv[1:]
    return os.sep in name or any(name in (word, word.partition("=")[2], *re.split("[=:,]", word)) for word in words)


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
        command, words = fairseq_command(), sys.argv[1:] if input_args is None else input_args
        if command and "error" not in vars(parser):
            parser.error = partial(raise_as_mistake, command=command, words=words)
        check_arguments(words)
        try:
            parsed = original(parser, input_args, *args, **kwargs)
        except RuntimeError as error:
            if command != "fairseq-train" or error.args:
                raise
            raise InputError("--arch: is not given; such as --arch reservoir_transformer_study") from error
        refuse_what_hydra_would_change(parser, parsed[0] if isinstance(parsed, tuple) else parsed, words)
        if command and not kwargs.get("suppress_defaults"):
            refuse_missing(command, parsed[0] if isinstance(parsed, tuple) else parsed)
        return parsed

    def eval_str_list(original, text, x_type=float):
        try:
            if text == "" and x_type is not str:  # a list of words may be empty
                raise ValueError("no number at all")
            return original(text, x_type)
        except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError) as error:  # argparse knows two of them
            raise ArgumentTypeError(f"{text!r} is neither a number nor several with commas between them") from error

    def build_model(original, *args, **kwargs):
        try:
            return original(*args, **kwargs)
        except ValueError as error:
            if isinstance(error, InputError) or not str(error).startswith("--"):
                raise
            made = "; fairseq-preprocess --joined-dictionary makes one" if "joined dictionary" in str(error) else ""
            raise InputError(f"{error}{made}") from error

    def override_attr(original, sub_node, data_class, args):
        for name, option in getattr(data_class, "__dataclass_fields__", {}).items():
            _read(args, name, option.type)
        return original(sub_node, data_class, args)

    wrap(options, "parse_args_and_arch", parse_args_and_arch)
    wrap(models, "build_model", build_model)
    wrap(dataclass_utils, "eval_str_list", eval_str_list)
    wrap(dataclass_utils, "_override_attr", override_attr)


def refuse_what_hydra_would_change(parser, flags, words):
    """Refuse text that would not arrive as it was given: fairseq passes every flag through hydra's grammar.

    Args:
        parser: its actions give each value its flag.
        flags: the namespace that the parser made.
        words: the command line.

    Raises:
        InputError: a value has ``${``, which refers to another option, or a backslash before a quote.
    """
    if not any("${" in word or "\\'" in word for word in words):
        return
    names = {action.dest: (action.option_strings or [action.dest.upper()])[-1] for action in parser._actions}
    for dest, value in vars(flags).items():
        for text in value if isinstance(value, list) else [value]:
            if not isinstance(text, str) or not any(word == text or word.endswith(f"={text}") for word in words):
                continue
            flag = names.get(dest, flag_of(dest))
            if "${" in text:
                raise InputError(
                    f"{flag} {text!r}: flags have no ${{...}}, which belongs into YAML; give the value itself"
                )
            if "\\'" in text:
                raise InputError(f"{flag} {text!r}: has a backslash before a quote, which fairseq cannot read")


def _whole(text):
    number = float(text)
    if number != int(number):
        raise ValueError(text)
    return int(text) if text.lstrip("+-").isdigit() else int(number)


_WHAT = {int: "a whole number", float: "a number", bool: "true or false"}
_READ = {int: _whole, float: float, bool: {"true": True, "false": False, "1": True, "0": False}.__getitem__}


def _read(args, name, kind):
    """Read a number, or true or false, in place.

    fairseq leaves it as text if its default follows another flag, and evaluates it later.
    """
    value, kind = getattr(args, name, None), kind if isinstance(kind, str) else dataclass_utils.interpret_dc_type(kind)
    if kind not in _WHAT or not isinstance(value, str) or value == "None" or value.startswith("${"):
        return
    try:
        setattr(args, name, _READ[kind](value.strip().lower()))
    except (ValueError, KeyError, OverflowError):
        raise InputError(f"{flag_of(name)} {value!r}: must be {_WHAT[kind]}") from None


def raise_as_mistake(message, command=None, words=()):
    """Raise argparse's message, such as ``argument --encoder-layers: invalid int value: 'x'``, as an ``InputError``.

    Args:
        message: argparse's.
        command, words: whose words they are, such as ``fairseq-train``'s; of an unrecognized flag it is then said what has it.
    """
    if message.endswith(f"value: {MISSING!r}"):  # a default that stands for none
        raise InputError(f"{message.removeprefix('argument ').split(':')[0]}: is not given, and has no default")
    unrecognized = message.partition("unrecognized arguments: ")[2].split()
    hint = ""
    if unrecognized and words[:1] == [NO_DATA] and unrecognized[0] in words:
        before = words[words.index(unrecognized[0]) - 1]
        if not unrecognized[0].startswith("-") and not before.startswith(
            "-"
        ):  # else the value of a flag that takes none
            hint = f"; no data are needed here: leave {unrecognized[0]} out"
    raise InputError(message.removeprefix("argument ") + whose(command, unrecognized, words) + hint)


@repair("input-errors")
def report_input_errors():
    """Let the fairseq commands end with one line and status 2 on an ``InputError``.

    Plain fairseq shows a mistyped flag or a missing file as a traceback of its own internals. The exception hook is installed when
    a fairseq command starts its work, because importing the plugin must not change any other program. Every other error keeps the
    hook that was there before.
    """

    def import_user_module(original, *args, **kwargs):
        install_in_command()
        return original(*args, **kwargs)

    # Every command calls it, fairseq-preprocess too, which does not read its flags by parse_args_and_arch.
    wrap(utils, "import_user_module", import_user_module)


def install_first(parse_args_and_arch, *args, **kwargs):
    """Hook of ``parse_args_and_arch`` around all others, so that their refusals end in one line."""
    if report_input_errors.state == APPLIED:
        install_in_command()
    return parse_args_and_arch(*args, **kwargs)


def install_in_command():
    """Put ``print_in_one_line`` in place of ``sys.excepthook`` if a fairseq command is running."""
    if fairseq_command():
        wrap(sys, "excepthook", print_in_one_line)


def print_in_one_line(previous, kind, error, traceback):
    """Exception hook: print an ``InputError`` as one line and end with status 2."""
    mistake, command = find_input_error(error), fairseq_command()
    if mistake is None or command is None:
        previous(kind, error, traceback)
        return
    print(f"{command}: error: {mistake}", file=sys.stderr)
    # The interpreter honours SystemExit here. It runs its exit functions and returns argparse's status for errors.
    # In a process group torch's hook stands around this one and would lose the line: there the status is 1.
    if getattr(sys.excepthook, "hook", None) is print_in_one_line:
        raise SystemExit(2)
