"""Hints for the command line: the flag that a choice such as ``--lr-scheduler`` still needs, and the choice an unknown flag belongs to."""

import argparse
import dataclasses
import re
from difflib import SequenceMatcher
from functools import partial

from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.registry import REGISTRIES
from fairseq.tasks import TASK_DATACLASS_REGISTRY, TASK_REGISTRY, FairseqTask
from omegaconf import MISSING

from ..errors import InputError, flag_of
from .given import Given

# Every command has the flags of every choice; these are the choices that it makes something of. In all others but training the
# architecture, and in validation the criterion, are those of the checkpoint.
_MADE = {
    "fairseq-train": ("criterion", "optimizer", "lr_scheduler"),
    "fairseq-validate": (),
    "fairseq-eval-lm": (),
    "fairseq-generate": ("bpe", "tokenizer", "scoring"),
    "fairseq-interactive": ("bpe", "tokenizer"),
}
# Of several tasks with a flag these are named first.
_USUAL = ("translation", "language_modeling", "masked_lm", "sentence_prediction")


def refuse_missing(command: str, flags: argparse.Namespace) -> None:
    """Refuses a choice without a flag of its own that has to be given.

    ``--lr-scheduler polynomial_decay`` gets its length from ``--max-update``, as its default is meant to.

    Args:
        command: such as ``fairseq-train``.
        flags: all of them; a length that is not given is filled in.

    Raises:
        InputError: a flag is missing.
    """
    if Given(flags).lr_scheduler == "polynomial_decay" and vars(flags).get("total_num_update", 0) is None:
        flags.total_num_update = vars(flags).get("max_update", 1) or None  # only a training has --max-update
    _refuse_other_criterion(flags)
    if command == "fairseq-generate":
        _refuse_in_generation(flags)
    for choice, of in REGISTRIES.items():
        chosen = getattr(flags, choice, None)
        dataclass = of["dataclass_registry"].get(chosen)
        missing = []
        for field in dataclasses.fields(dataclass) if dataclass else ():
            value = getattr(flags, field.name, MISSING)
            # No configuration can be made of the first; the second is an error once it is read.
            cannot_be_none = value is None and field.type in (str, int, float, bool)
            if cannot_be_none or (value == MISSING == field.default and _makes(command, choice, flags)):
                missing.append(flag_of(field.name))
        if missing:
            raise InputError(f"{' and '.join(missing)}: not given, and {flag_of(choice)} {chosen} needs it")


def _refuse_other_criterion(flags):
    """A task that takes options from its criterion, as sentence_prediction the name of its head, where that has none of the kind."""
    task, criterion = Given(flags).task, Given(flags).criterion
    dataclass, of = TASK_DATACLASS_REGISTRY.get(task), REGISTRIES["criterion"]["dataclass_registry"].get(criterion)
    own = {field.name for field in dataclasses.fields(of)} if of else set()
    for field in dataclasses.fields(dataclass) if dataclass and criterion else ():
        taken = re.fullmatch(r"\$\{criterion\.(\w+)\}", str(field.default))
        if taken and taken[1] not in own:
            raise InputError(f"--criterion {criterion}: is none of --task {task}; give --criterion {task}")


def _refuse_in_generation(flags):
    """Refuse flags whose input only ``fairseq-interactive`` has: binarised data hold no constraints (fairseq #4332) and no text."""
    given = Given(flags)
    if given.constraints:
        raise InputError(
            "--constraints: fairseq-generate reads no constraints; give them to fairseq-interactive --constraints, "
            "behind each sentence, with tabs between them"
        )
    if given.replace_unk is not None and str(given.dataset_impl) != "raw":
        raise InputError(
            "--replace-unk: fairseq-generate needs the data as text for it, with --dataset-impl raw; fairseq-interactive takes any"
        )


def _makes(command, choice, flags):
    """Whether the command reads the choice; a task may have a tokenizer and a splitting into pieces of its own."""
    task, method = TASK_REGISTRY.get(Given(flags).task, FairseqTask), f"build_{choice}"
    own = getattr(task, method, None) is not getattr(FairseqTask, method, None)
    return choice in _MADE.get(command, ()) and not (choice in ("bpe", "tokenizer") and own)


def whose(command: str | None, unrecognized: list[str], words: list[str]) -> str:
    """Says of flags that a command does not know which choices have them, as in ``; --mask-prob is of --task masked_lm``.

    Args:
        command: such as ``fairseq-train``.
        unrecognized: words of the command line.
        words: all words of the command line; of several owners those most like what it chooses come first.
    """
    flags = [word.split("=")[0] for word in unrecognized if word.startswith("--")]
    found = ""
    for kind in _kinds(command) if flags else ():
        chosen = _given(kind, words)
        of = {name: _flags(kind, name, made) for name, made in _choices(kind, chosen).items()}
        for flag in flags:
            owners = sorted((name for name, own in of.items() if flag in own), key=partial(_distance, kind, chosen))
            if owners:
                names = ", ".join(owners[:3]) + (" and others" if len(owners) > 3 else "")
                found += f"; {flag} is of {flag_of(kind)} {names}"
    return found


def _kinds(command):
    """What is chosen by flags of a command."""
    if command == "fairseq-train":
        return ("arch", "task", *REGISTRIES)
    return ("task", *_MADE[command]) if command in _MADE else ()


def _choices(kind, chosen):
    """By name, what is made; of the architectures of one model, which have the same flags, the one most like what is chosen."""
    if kind == "task":
        return {name: made for name, made in TASK_REGISTRY.items() if not name.startswith("dummy_")}
    if kind != "arch":
        return REGISTRIES[kind]["registry"]
    nearest = {}
    for name in sorted(ARCH_MODEL_REGISTRY, key=partial(_distance, kind, chosen), reverse=True):
        nearest[ARCH_MODEL_REGISTRY[name]] = name
    return {name: made for made, name in nearest.items()}


def _distance(kind, chosen, name):
    """To be sorted by: the same model with something frozen, what is usual, and then the names most alike."""
    return (
        name != f"frozen_{chosen}",
        not (kind == "task" and name in _USUAL),
        -SequenceMatcher(None, chosen, name).ratio(),
        len(name),
        name,
    )


def _flags(kind, name, made):
    parser = argparse.ArgumentParser(add_help=False, conflict_handler="resolve")
    if hasattr(made, "add_args"):
        made.add_args(parser)
    else:
        dataclass = REGISTRIES[kind]["dataclass_registry"].get(name) if kind in REGISTRIES else None
        if dataclass is not None:
            gen_parser_from_dataclass(parser, dataclass())
    return parser._option_string_actions.keys()


def _given(kind, words):
    """What the words choose, or else what the command does."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument(flag_of(kind), *(["-a"] if kind == "arch" else []), dest="chosen", default="")
    defaults = {"task": "translation"} | {name: of["default"] for name, of in REGISTRIES.items()}
    return parser.parse_known_args(words)[0].chosen or defaults.get(kind) or ""
