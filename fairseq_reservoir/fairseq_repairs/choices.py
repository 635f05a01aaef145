"""Hints in error messages: flags that a choice such as ``--task NAME`` requires, and the choice to which an unknown flag belongs.

The hints help a user who copies half of a recipe, or who gives flags of this package but no ``--arch`` of it. Plain fairseq ends in a
traceback, or prints "unrecognized arguments" after 150 lines of usage.
"""

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
from .given import Given, names_in

# Choices that each command builds from its flags, although it accepts the flags of all choices. Commands other than fairseq-train read
# the architecture from the checkpoint. fairseq-validate reads the criterion from it, too.
_BUILT = {
    "fairseq-train": ("criterion", "optimizer", "lr_scheduler"),
    "fairseq-validate": (),
    "fairseq-eval-lm": (),
    "fairseq-generate": ("bpe", "tokenizer", "scoring"),
    "fairseq-interactive": ("bpe", "tokenizer"),
}
# A flag of supermask models and, with another meaning, of the task denoising.
_SHARED = "--mask-random"
# Tasks that a hint names first.
_USUAL = ("translation", "language_modeling", "masked_lm", "sentence_prediction")


def refuse_missing(command: str, flags: argparse.Namespace) -> None:
    """Refuse a choice without one of its required flags.

    For ``--lr-scheduler polynomial_decay``, a missing ``--total-num-update`` is set to its default, ``--max-update``.

    Args:
        command: name of the command, such as ``fairseq-train``.
        flags: the namespace of all flags.

    Raises:
        InputError: a flag is missing.
    """
    if Given(flags).lr_scheduler == "polynomial_decay" and vars(flags).get("total_num_update", 0) is None:
        flags.total_num_update = vars(flags).get("max_update", 1) or None  # only fairseq-train has --max-update
    _refuse_other_criterion(flags)
    if command == "fairseq-generate":
        _refuse_in_generation(flags)
    for choice, of in REGISTRIES.items():
        chosen = getattr(flags, choice, None)
        dataclass = of["dataclass_registry"].get(chosen)
        missing = []
        for field in dataclasses.fields(dataclass) if dataclass else ():
            value = getattr(flags, field.name, MISSING)
            # None cannot be converted to a configuration. MISSING raises an error when the option is read.
            cannot_be_none = value is None and field.type in (str, int, float, bool)
            if cannot_be_none or (value == MISSING == field.default and _builds(command, choice, flags)):
                missing.append(flag_of(field.name))
        if missing:
            raise InputError(f"{' and '.join(missing)}: not given, but required by {flag_of(choice)} {chosen}")


def _refuse_other_criterion(flags):
    """Refuse a criterion without an option that the task reads.

    For example, the task sentence_prediction reads the criterion's option for the name of the classification head.
    """
    task, criterion = Given(flags).task, Given(flags).criterion
    dataclass, of = TASK_DATACLASS_REGISTRY.get(task), REGISTRIES["criterion"]["dataclass_registry"].get(criterion)
    own = {field.name for field in dataclasses.fields(of)} if of else set()
    for field in dataclasses.fields(dataclass) if dataclass and criterion else ():
        reference = re.fullmatch(r"\$\{criterion\.(\w+)\}", str(field.default))
        if reference and reference[1] not in own:
            raise InputError(f"--criterion {criterion}: does not fit --task {task}; give --criterion {task}")


def _refuse_in_generation(flags):
    """Refuse flags that do not work with binarised data, which contain no constraints (fairseq #4332) and no original words."""
    given = Given(flags)
    if given.constraints:
        raise InputError(
            "--constraints: fairseq-generate does not read constraints; use fairseq-interactive --constraints, and write the constraints "
            "after each sentence, separated by tabs"
        )
    if given.replace_unk is not None and str(given.dataset_impl) != "raw":
        raise InputError(
            "--replace-unk: fairseq-generate needs text data for this flag; add --dataset-impl raw, or use fairseq-interactive"
        )


def _builds(command, choice, flags):
    """Whether the command builds the chosen component from flags. A task may build its own tokenizer or subword encoding instead."""
    task, method = TASK_REGISTRY.get(Given(flags).task, FairseqTask), f"build_{choice}"
    own = getattr(task, method, None) is not getattr(FairseqTask, method, None)
    return choice in _BUILT.get(command, ()) and not (choice in ("bpe", "tokenizer") and own)


def refuse_shared_flag(words: list[str]) -> None:
    """Refuse ``--mask-random`` if both the task and the architecture have a flag of this name.

    In tasks of fairseq that corrupt text, the flag has a value: the share of random tokens. argparse would refuse the value, or give
    ``True`` to both.

    Raises:
        InputError: one line with the flag.
    """
    if _SHARED not in names_in(words):
        return
    task, arch = _given("task", words), _given("arch", words)
    of_task, of_arch = TASK_REGISTRY.get(task), ARCH_MODEL_REGISTRY.get(arch)
    if of_task and of_arch and _SHARED in _flags("task", task, of_task) & _flags("arch", arch, of_arch):
        raise InputError(
            f"{_SHARED}: --task {task} and --arch {arch} have different flags of this name, so a command line cannot set either; remove it"
        )


def owners_of_unknown(command: str | None, unrecognized: list[str], words: list[str]) -> str:
    """Name the choices that unknown flags belong to, as in ``; --mask-prob belongs to --task masked_lm``.

    Args:
        command: name of the command, such as ``fairseq-train``.
        unrecognized: the words of the command line that argparse does not recognize.
        words: the whole command line. If a flag belongs to several choices, the choices most similar to those on the command line are
            named first.
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
                found += f"; {flag} belongs to {flag_of(kind)} {names}"
    return found


def _kinds(command):
    """Return the names of the registries from which a command's flags select a class, such as ``task`` and ``criterion``."""
    if command == "fairseq-train":
        return ("arch", "task", *REGISTRIES)
    return ("task", *_BUILT[command]) if command in _BUILT else ()


def _choices(kind, chosen):
    """Return the classes of a registry by name. For each model, list only the architecture with the name most similar to ``chosen``."""
    if kind == "task":
        return {name: made for name, made in TASK_REGISTRY.items() if not name.startswith("dummy_")}
    if kind != "arch":
        return REGISTRIES[kind]["registry"]
    nearest = {}
    for name in sorted(ARCH_MODEL_REGISTRY, key=partial(_distance, kind, chosen), reverse=True):
        nearest[ARCH_MODEL_REGISTRY[name]] = name
    return {name: made for made, name in nearest.items()}


def _distance(kind, chosen, name):
    """Sort key: the frozen version of ``chosen`` comes first, then usual tasks, then the names most similar to ``chosen``."""
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
    """Return the name that the command line selects from the registry ``kind``, or the default name."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument(flag_of(kind), *(["-a"] if kind == "arch" else []), dest="chosen", default="")
    defaults = {"task": "translation"} | {name: of["default"] for name, of in REGISTRIES.items()}
    return parser.parse_known_args(words)[0].chosen or defaults.get(kind) or ""
