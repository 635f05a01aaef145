"""Refuse, in one line, flags that argparse or fairseq's dataclasses cannot read."""

import re
from argparse import ArgumentTypeError
from functools import partial

from fairseq.dataclass import utils as dataclass_utils
from omegaconf import MISSING

from ..errors import InputError, check_arguments, flag_of
from .choices import owners_of_unknown, refuse_missing, refuse_shared_flag
from .error_report import fairseq_command
from .papers_flags import answer_for_architecture, answers
from .repair import repair, wrap

# Flags of earlier versions, with the flag to give instead.
_REMOVED = dict.fromkeys(
    ("--freeze-auto", "--freeze-auto-interval", "--freeze-auto-threshold", "--freeze-auto-keep"), "--freeze-schedule"
)
# Stands for the DATA argument in commands of this package that build a model without data.
NO_DATA = "no-data"


@repair("flag-errors")
def refuse_flags_in_one_line():
    """Report, in one line, a flag that argparse rejects.

    argparse prints the 150 lines of fairseq's usage before the error. Programs other than fairseq's commands keep argparse's behaviour.
    ``trainer.reading_flags`` and ``trainer.building`` call the functions below.
    """
    wrap(dataclass_utils, "eval_str_list", eval_str_list)
    wrap(dataclass_utils, "_override_attr", override_attr)


def prepare(parser, words) -> None:
    """Let the parser of a fairseq command raise an ``InputError`` instead of printing its usage.

    Raises:
        InputError: fairseq would misread an argument.
    """
    if not refuse_flags_in_one_line.is_applied:
        return
    command = fairseq_command()
    if command and "error" not in vars(parser):
        parser.error = partial(raise_as_mistake, command=command, words=words)
    check_arguments(words)
    refuse_shared_flag(words)


def refuse_missing_arch(error: RuntimeError) -> None:
    """Raise an ``InputError`` if fairseq raised ``error``, which then has no message, because ``--arch`` is missing."""
    if refuse_flags_in_one_line.is_applied and fairseq_command() == "fairseq-train" and not error.args:
        raise InputError("--arch: not given; for example, --arch reservoir_transformer_study") from error


def check_parsed(parser, flags, words, is_complete: bool) -> None:
    """Refuse values that hydra would change. Also refuse a flag such as ``--lr-scheduler`` if its value needs a missing flag.

    Args:
        parser: the parser of the command.
        flags: the namespace that the parser returned.
        words: the command line.
        is_complete: whether the namespace also has the defaults of options that the command line does not give.

    Raises:
        InputError: one line with the flag.
    """
    if not refuse_flags_in_one_line.is_applied:
        return
    refuse_what_hydra_would_change(parser, flags, words)
    command = fairseq_command()
    if command and is_complete:
        refuse_missing(command, flags)


def refuse_flag_of_model(error: ValueError) -> None:
    """Raise an ``InputError`` if a model raised ``error`` with a message that starts with a flag."""
    if not refuse_flags_in_one_line.is_applied or isinstance(error, InputError) or not str(error).startswith("--"):
        return
    made = "; fairseq-preprocess --joined-dictionary makes one" if "joined dictionary" in str(error) else ""
    raise InputError(f"{error}{made}") from error


def eval_str_list(original, text, x_type=float):
    try:
        if text == "" and x_type is not str:  # a list of words may be empty
            raise ValueError("no number at all")
        return original(text, x_type)
    except (
        SyntaxError,
        ValueError,
        TypeError,
        RecursionError,
        MemoryError,
    ) as error:  # argparse catches only two of these
        raise ArgumentTypeError(f"{text!r} is neither a number nor a list of numbers separated by commas") from error


def override_attr(original, sub_node, data_class, args):
    for name, option in getattr(data_class, "__dataclass_fields__", {}).items():
        _read(args, name, option.type)
    return original(sub_node, data_class, args)


def refuse_what_hydra_would_change(parser, flags, words):
    """Refuse text that hydra would change, because fairseq parses every flag by hydra's grammar.

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
                    f"{flag} {text!r}: only YAML files can refer to other options by ${{...}}; give the value itself"
                )
            if "\\'" in text:
                raise InputError(f"{flag} {text!r}: has a backslash before a quote, which fairseq cannot read")


def _whole(text):
    number = float(text)
    if number != int(number):
        raise ValueError(text)
    return int(text) if text.lstrip("+-").isdigit() else int(number)


_NAMES = {int: "a whole number", float: "a number", bool: "true or false"}
_READ = {int: _whole, float: float, bool: {"true": True, "false": False, "1": True, "0": False}.__getitem__}


def _read(args, name, kind):
    """Convert the value of an option from text to its number or boolean, in place.

    If the default of an option refers to another flag, fairseq keeps a given value as text and evaluates the text later.
    """
    value, kind = getattr(args, name, None), kind if isinstance(kind, str) else dataclass_utils.interpret_dc_type(kind)
    if kind not in _NAMES or not isinstance(value, str) or value == "None" or value.startswith("${"):
        return
    try:
        setattr(args, name, _READ[kind](value.strip().lower()))
    except (ValueError, KeyError, OverflowError):
        raise InputError(f"{flag_of(name)} {value!r}: must be {_NAMES[kind]}") from None


def raise_as_mistake(message, command=None, words=()):
    """Raise argparse's message, such as ``argument --encoder-layers: invalid int value: 'x'``, as an ``InputError``.

    Args:
        message: the message of argparse.
        command: name of the command, such as ``fairseq-train``, for a hint about unrecognized flags.
        words: the command line, for the same hint.
    """
    if message.endswith(f"value: {MISSING!r}"):  # stands for a missing default
        raise InputError(f"{message.removeprefix('argument ').split(':')[0]}: is required, because it has no default")
    unrecognized = message.partition("unrecognized arguments: ")[2].split()
    for flag in (word.split("=")[0] for word in unrecognized):
        if flag in _REMOVED:
            raise InputError(f"{flag}: was removed; give {_REMOVED[flag]}")
    _answer_papers(message, unrecognized)
    hint = ""
    if unrecognized and words[:1] == [NO_DATA] and unrecognized[0] in words:
        before = words[words.index(unrecognized[0]) - 1]
        # A word after a flag may be a value for a flag that accepts none.
        if not unrecognized[0].startswith("-") and not before.startswith("-"):
            hint = f"; this command needs no data: remove {unrecognized[0]}"
    raise InputError(message.removeprefix("argument ") + owners_of_unknown(command, unrecognized, words) + hint)


def _answer_papers(message, unrecognized):
    """Refuse flags and architectures of the papers' code. The message names the corresponding flags of this package."""
    found, others = answers(unrecognized)
    if found:
        raise InputError("; ".join([*found, *(["unrecognized arguments: " + " ".join(others)] if others else [])]))
    if of_choice := re.match(r"argument --arch\S*: invalid choice: '(\w+)'", message):
        if answer := answer_for_architecture(of_choice[1]):
            raise InputError(answer)
