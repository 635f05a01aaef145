"""Check the flags of commands that read a model: file names, numbers, required flags and overrides."""

import contextlib
import dataclasses
import os.path
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Iterator, Set as AbstractSet
from typing import Any

from fairseq.criterions import CRITERION_REGISTRY
from fairseq.dataclass.configs import FairseqConfig
from fairseq.models import MODEL_DATACLASS_REGISTRY, MODEL_REGISTRY
from fairseq.registry import REGISTRIES
from fairseq.tasks import TASK_DATACLASS_REGISTRY, TASK_REGISTRY
from fairseq.utils import split_paths
from omegaconf import OmegaConf

from ..errors import InputError
from ..fairseq_repairs.error_report import fairseq_command
from ..files import check_file
from ..options import fairseq_rules, generation_rules
from ..options.fairseq_flags import CheckpointFlags
from ..options.for_fairseq import dictionary_flags
from ..options.reading import read

# The commands that read a model. The first two accept several models in one --path.
_ENSEMBLES = ("fairseq-generate", "fairseq-interactive")
_READERS = (*_ENSEMBLES, "fairseq-eval-lm", "fairseq-validate")


def refuse_missing_task(error: KeyError) -> None:
    """Raise an ``InputError`` if ``error`` is the ``KeyError(None)`` that fairseq raises if ``fairseq-validate`` runs without a task."""
    if fairseq_command() == "fairseq-validate" and error.args == (None,):
        raise InputError("--task: not given; give the task of the training, such as --task translation") from error


def check_flags(flags: Namespace) -> None:
    """Check the flags of a command that reads a model, before it reads any file.

    Raises:
        InputError: a model is not given or cannot be read, a number is out of range, or ``fairseq-validate`` has no batch size.
    """
    command = fairseq_command()
    if command not in _READERS or not hasattr(flags, "path"):
        return
    _check_files(command, flags)
    if command == "fairseq-validate" and flags.max_tokens is None and flags.batch_size is None:
        raise InputError("--max-tokens, --batch-size: not given; give one of them, such as --max-tokens 4096")
    fairseq_rules.check(flags)
    generation_rules.check(flags)
    if command == "fairseq-interactive":
        _check_interactive(flags)
    dictionary_flags.read_python("--model-overrides", flags.model_overrides)


def _check_interactive(flags: Namespace) -> None:
    if flags.input != "-":
        check_file("--input", flags.input, or_pipe=True)
    at_once = max(flags.buffer_size, 1)
    if flags.batch_size is not None and flags.batch_size > at_once:
        raise InputError(f"--batch-size {flags.batch_size}: must be at most --buffer-size ({at_once})")
    for flag, given in (
        ("--score-reference", flags.score_reference),
        (f"--prefix-size {flags.prefix_size}", flags.prefix_size),
    ):
        if given:
            raise InputError(f"{flag}: needs references, so it works only in fairseq-generate; remove the flag")
    if flags.print_alignment == "soft":
        raise InputError("--print-alignment soft: works only in fairseq-generate; remove soft")


def reads_a_model() -> bool:
    """Return whether a command that reads a model is running."""
    return fairseq_command() in _READERS


def check_overrides(path: str, state: dict[str, Any], overrides: dict[str, Any]) -> None:
    """Refuse a key of ``--model-overrides`` that is neither in the configuration of a checkpoint nor a flag of fairseq.

    Args:
        path: path of the checkpoint.
        state: state of the checkpoint.
        overrides: overrides of the checkpoint's configuration. fairseq-validate adds its own flags to them.

    Raises:
        InputError: a key is unknown.
    """
    known = {name for place in ("cfg", "args") for name in _names(state.get(place))}
    refuse_unknown_options(
        "--model-overrides", overrides, f"neither in the configuration of {path} nor a flag of fairseq", known
    )


def refuse_unknown_options(
    where: str, names: Iterable[str], what: str, also_known: AbstractSet[str] = frozenset()
) -> None:
    """Refuse names that are neither in ``also_known`` nor a flag of fairseq.

    Args:
        where: the beginning of the message, such as a flag.
        names: the names.
        what: the reason in the message.
        also_known: further allowed names.

    Raises:
        InputError: a name is unknown.
    """
    known = also_known | _options_of_dataclasses()
    if unknown := set(names) - known:
        known |= _flags_of_parsers()
        for name in sorted(unknown):
            dictionary_flags.refuse_unknown(where, name, known, what)


def _names(config: Any) -> Iterator[str]:
    """Yield the names of all options and groups of a configuration."""
    if isinstance(config, Namespace):
        config = vars(config)
    if not hasattr(config, "keys"):
        return
    for name in config:
        yield str(name)
        if not (OmegaConf.is_config(config) and OmegaConf.is_missing(config, name)):
            yield from _names(config[name])


def _options_of_dataclasses() -> set[str]:
    """Return the names of all groups of fairseq's configuration, and of all options in fairseq's dataclasses."""
    groups = dataclasses.fields(FairseqConfig)
    of_choices = [made for registry in REGISTRIES.values() for made in registry["dataclass_registry"].values()]
    of_others = [*TASK_DATACLASS_REGISTRY.values(), *MODEL_DATACLASS_REGISTRY.values()]
    found: set[str] = {
        field.name
        for made in (*(group.type for group in groups), *of_choices, *of_others)
        if dataclasses.is_dataclass(made)
        for field in dataclasses.fields(made)
    }
    return found.union(REGISTRIES, (group.name for group in groups), ("arch",))


def _flags_of_parsers() -> set[str]:
    """Return the names of the flags of fairseq's models, tasks and criteria. Building their parser takes a third of a second."""
    parser = ArgumentParser(conflict_handler="resolve")
    for made in (*MODEL_REGISTRY.values(), *TASK_REGISTRY.values(), *CRITERION_REGISTRY.values()):
        with contextlib.suppress(Exception):  # a user's own class may raise anything
            made.add_args(parser)
    return {action.dest for action in parser._actions}


def _check_files(command: str, flags: Namespace) -> None:
    path = flags.path
    if path is None:
        raise InputError("--path: not given; give the file of a model, such as --path checkpoints/checkpoint_best.pt")
    if not _in_several_files(flags):
        if command not in _ENSEMBLES and len(split_paths(path)) > 1 and not os.path.exists(path):
            raise InputError(f"--path {path}: names several models, but {command} accepts only one; give one of them")
        for one in split_paths(path) if command in _ENSEMBLES else [path]:
            _check_file("--path", one)
        if (language_model := read(CheckpointFlags, flags).lm_path) is not None:
            _check_file("--lm-path", language_model)


def _in_several_files(flags: Namespace) -> bool:
    """Return whether each process reads a different part of the model. fairseq then adds a suffix to the path."""
    parts = read(CheckpointFlags, flags)
    return parts.checkpoint_suffix != "" or parts.checkpoint_shard_count != 1 or parts.model_parallel_size > 1


def _check_file(flag: str, path: str) -> None:
    if "://" in path:
        return
    if os.path.isdir(path):
        raise InputError(
            f"{flag} {path}: is a folder; name a file in it, such as {os.path.join(path, 'checkpoint_best.pt')}"
        )
    # FSDP may have saved the model in shards. Then ``path`` does not exist, and fairseq reads the first shard.
    if os.path.exists(path) or not os.path.exists(f"{path[:-3]}-shard0.pt"):
        check_file(flag, path)
