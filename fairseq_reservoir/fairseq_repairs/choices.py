"""Answers a choice, such as of ``--optimizer``, without a flag that it needs, and a flag that only other choices have."""

import argparse
import dataclasses
from difflib import SequenceMatcher

from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.registry import REGISTRIES
from fairseq.tasks import TASK_REGISTRY
from omegaconf import MISSING

from ..errors import InputError

# Every command has the flags of every choice; these are the ones that it makes something of.
MADE = {
    "fairseq-train": ("criterion", "optimizer", "lr_scheduler"),
    "fairseq-validate": ("criterion",),
    "fairseq-eval-lm": (),
    "fairseq-generate": ("bpe", "tokenizer", "scoring"),
    "fairseq-interactive": ("bpe", "tokenizer", "scoring"),
}


def refuse_missing(command: str, flags: argparse.Namespace) -> None:
    """Refuses a choice without a flag of its own that has to be given.

    ``--lr-scheduler polynomial_decay`` gets its length from ``--max-update``, as its default is meant to.

    Args:
        command: such as ``fairseq-train``.
        flags: all of them; a length that is not given is filled in.

    Raises:
        InputError: a flag is missing.
    """
    if getattr(flags, "lr_scheduler", None) == "polynomial_decay" and getattr(flags, "total_num_update", 0) is None:
        flags.total_num_update = getattr(flags, "max_update", 1) or None  # only a training has --max-update
    for choice, of in REGISTRIES.items():
        chosen = getattr(flags, choice, None)
        dataclass = of["dataclass_registry"].get(chosen)
        for field in dataclasses.fields(dataclass) if dataclass else ():
            value = getattr(flags, field.name, MISSING)
            # No configuration can be made of the first; the second is an error once it is read.
            cannot_be_none = value is None and field.type in (str, int, float, bool)
            if cannot_be_none or (value == MISSING == field.default and choice in MADE.get(command, ())):
                names = [name.replace("_", "-") for name in (field.name, choice)]
                raise InputError(f"--{names[0]}: is not given, and --{names[1]} {chosen} needs it")


def whose(command: str | None, unrecognized: list[str], words: list[str]) -> str:
    """Says of flags that a command does not know which choices have them: ``; --momentum is of --optimizer sgd``, say.

    Args:
        command: such as ``fairseq-train``.
        unrecognized: words of the command line.
        words: all words of the command line; of several owners those most like what it chooses come first.
    """
    flags = [word.split("=")[0] for word in unrecognized if word.startswith("--")]
    found = ""
    for kind in _kinds(command):
        of = {name: _flags(kind, name, made) for name, made in _choices(kind).items()} if flags else {}
        chosen = _given(f"--{kind.replace('_', '-')}", words) or REGISTRIES.get(kind, {}).get("default") or ""
        for flag in flags:
            owners = [name for name, own in of.items() if flag in own]
            owners.sort(key=lambda name: (-SequenceMatcher(None, chosen, name).ratio(), len(name)))
            if owners:
                names = ", ".join(owners[:3]) + (" and others" if len(owners) > 3 else "")
                found += f"; {flag} is of --{kind.replace('_', '-')} {names}"
    return found


def _kinds(command):
    """What is chosen by flags of a command; other commands than training read the model's in the checkpoint."""
    if command == "fairseq-train":
        return ("arch", "task", *REGISTRIES)
    return ("task", *MADE[command]) if command in MADE else ()


def _choices(kind):
    """By name, what is made; of the architectures of one model, which have the same flags, that of the shortest name."""
    if kind == "task":
        return TASK_REGISTRY
    if kind != "arch":
        return REGISTRIES[kind]["registry"]
    shortest = {made: name for name, made in sorted(ARCH_MODEL_REGISTRY.items(), key=lambda item: -len(item[0]))}
    return {name: made for made, name in shortest.items()}


def _flags(kind, name, made):
    parser = argparse.ArgumentParser(add_help=False, conflict_handler="resolve")
    if hasattr(made, "add_args"):
        made.add_args(parser)
    else:
        dataclass = REGISTRIES[kind]["dataclass_registry"].get(name) if kind in REGISTRIES else None
        if dataclass is not None:
            gen_parser_from_dataclass(parser, dataclass())
    return parser._option_string_actions.keys()


def _given(flag, words):
    for number, word in enumerate(words):
        if word == flag:
            return words[number + 1] if number + 1 < len(words) else ""
        if word.startswith(f"{flag}="):
            return word.removeprefix(f"{flag}=")
    return ""
