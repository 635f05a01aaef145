"""Stores in checkpoints the dictionaries a model was trained with, and refuses others: one of the same size would give wrong words."""

from pathlib import Path
from typing import Any

from fairseq import tasks, utils
from fairseq.data import data_utils
from omegaconf import open_dict
from omegaconf.errors import OmegaConfBaseException

from ..errors import InputError
from ..random_tensors import digest
from .unregistered import check_task


def describe(task: Any) -> dict[str, dict[str, Any]]:
    """Number of entries and SHA-256 of the source and the target dictionary of a task."""
    return {
        side: {"entries": len(dictionary), "sha256": digest.of_symbols(dictionary.symbols)}
        for side in ("source", "target")
        if (dictionary := getattr(task, f"{side}_dictionary", None)) is not None
    }


def task_of_config(config: Any, data: str | None) -> Any:
    """The task of a checkpoint, with the dictionaries that its configuration names.

    Args:
        config: fairseq's configuration.
        data: the folder of the dictionaries, if not that of the configuration.

    Raises:
        InputError: they are not there, or the task is not known here.
    """
    if data:
        with open_dict(config):
            config.task.data = data
    check_task(config.task)
    try:
        return tasks.setup_task(config.task, from_checkpoint=True)
    except Exception as error:
        # ValueError, RuntimeError: not the lines of a dictionary. Where there is no language pair it is of no class of its own.
        of_data = isinstance(error, (OSError, ValueError, RuntimeError)) or type(error) is Exception
        if not of_data or isinstance(error, OmegaConfBaseException):
            raise
        raise InputError(
            f"--data {config.task.data}: does not hold the dictionaries of the checkpoint ({' '.join(str(error).split())})"
        ) from error


def languages_in(data: str | None) -> tuple[str | None, str | None]:
    """The languages of a folder of binarised data, None of a folder that is not there or not named."""
    folder = utils.split_paths(data)[0] if data else ""
    pair = data_utils.infer_language_pair(folder) if folder and Path(folder).is_dir() else (None, None)
    return pair[0], pair[1]


def where_trained(config: Any) -> dict[str, dict[str, Any]]:
    """``describe`` of the dictionaries in the folder that a configuration names, empty if they are no longer there."""
    try:
        return describe(task_of_config(config, None))
    except InputError:
        return {}


def check(
    path: str, expected: dict[str, dict[str, Any]], task: Any, whose: str = "of DATA", same_size: bool = False
) -> None:
    """Refuses dictionaries that differ from those of an export or a checkpoint.

    Args:
        path: what the message is to begin with.
        expected: as ``describe`` gives it.
        task: with the dictionaries.
        whose: they are.
        same_size: compare those with as many entries alone. Others do not fit the tensors, which fairseq finds, or are cut by the model on
            purpose, as BART's is for translation.

    Raises:
        InputError: one differs.
    """
    if hasattr(task, "dicts"):  # one for each language; which of them are its sides depends on the pair
        return
    for side, found in describe(task).items():
        wanted = expected.get(side, found)
        if found != wanted and not (same_size and found["entries"] != wanted["entries"]):
            raise InputError(
                f"{path}: the {side} dictionary {whose} ({found['entries']} entries, SHA-256 {found['sha256'][:12]}) is not the"
                f" one trained with ({wanted['entries']} entries, SHA-256 {wanted['sha256'][:12]})"
            )
