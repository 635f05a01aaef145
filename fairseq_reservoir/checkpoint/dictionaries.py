"""Record the training dictionaries in checkpoints, and refuse to use a checkpoint with different dictionaries.

With a different dictionary of the same size, the model would produce wrong words without an error.
"""

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
    """Return the number of entries and the SHA-256 of a task's source and target dictionary."""
    return {
        side: {"entries": len(dictionary), "sha256": digest.of_symbols(dictionary.symbols)}
        for side in ("source", "target")
        if (dictionary := getattr(task, f"{side}_dictionary", None)) is not None
    }


# End of the message of the Exception that fairseq raises if no file name of a folder has the form SPLIT.LANGUAGE-LANGUAGE.LANGUAGE.idx.
_NO_LANGUAGES = "infer language pair, please provide it explicitly"


def task_of_config(config: Any, data: str | None, flag: str = "--data") -> Any:
    """Set up the task of a checkpoint with its dictionaries.

    Args:
        config: fairseq's configuration.
        data: folder of the dictionaries; None for the folder in the configuration.
        flag: the flag or the positional argument that gives ``data``, for error messages.

    Raises:
        InputError: the dictionaries are missing, or the task is not registered.
    """
    if data:
        with open_dict(config):
            config.task.data = data
    check_task(config.task)
    try:
        return tasks.setup_task(config.task, from_checkpoint=True)
    except Exception as error:
        # A damaged dictionary raises ValueError or RuntimeError. fairseq raises a plain Exception if it cannot infer the languages.
        of_data = isinstance(error, (OSError, ValueError, RuntimeError)) or type(error) is Exception
        if not of_data or isinstance(error, OmegaConfBaseException):
            raise
        advice = "" if data else "; give the folder of the dictionaries with --data"
        raise InputError(missing_in(folder_of(config, data, flag), error) + advice) from error


def missing_in(folder: str, error: Exception) -> str:
    """Message for a folder without the model's dictionaries, from the error that fairseq raised. ``folder`` begins the message."""
    return f"{folder}: does not contain the dictionaries of the model ({_reason(error)})"


def _reason(error: Exception) -> str:
    """Say which file is missing in the folder, or which line of a dictionary is damaged."""
    missing = error.__cause__  # ``building.setup_task`` adds flags of fairseq's commands to the message
    if isinstance(missing, FileNotFoundError) and missing.filename:
        return f"{missing.filename}: no such file"
    reason = " ".join(str(error).split())
    no_languages = "no file such as train.en-de.en.idx, whose name shows the languages"
    return no_languages if reason.endswith(_NO_LANGUAGES) else reason


def folder_of(config: Any, data: str | None, flag: str = "--data") -> str:
    """Return the text that names the dictionaries' folder in an error message. The arguments are those of ``task_of_config``."""
    return f"{flag} {data}" if data else f"DATA {config.task.data} (named in the checkpoint)"


def languages_in(data: str | None) -> tuple[str | None, str | None]:
    """Return the language pair of a data folder; (None, None) if the folder is missing."""
    folder = utils.split_paths(data)[0] if data else ""
    pair = data_utils.infer_language_pair(folder) if folder and Path(folder).is_dir() else (None, None)
    return pair[0], pair[1]


def where_trained(config: Any) -> dict[str, dict[str, Any]]:
    """Describe the dictionaries in the data folder of a configuration; {} if they are missing."""
    try:
        return describe(task_of_config(config, None))
    except InputError:
        return {}


def check(
    path: str, expected: dict[str, dict[str, Any]], task: Any, owner: str = "of DATA", same_size: bool = False
) -> None:
    """Refuse a task if its dictionaries differ from the training dictionaries.

    Args:
        path: beginning of the message, such as the path of the checkpoint.
        expected: training dictionaries, as ``describe`` returns them.
        task: fairseq's task, with the dictionaries to compare.
        owner: origin of the task's dictionaries, inserted in the message after "the source dictionary".
        same_size: do not compare a dictionary if its size differs from that of the training dictionary. Such a difference may be intended,
            as in BART's translation models. If the difference is not intended, the checkpoint's tensors do not fit the model, and fairseq
            reports their shapes.

    Raises:
        InputError: a dictionary differs.
    """
    # A multilingual task has one dictionary per language, and the language pair decides which of them are used.
    if hasattr(task, "dicts"):
        return
    for side, found in describe(task).items():
        wanted = expected.get(side, found)
        if found != wanted and not (same_size and found["entries"] != wanted["entries"]):
            raise InputError(
                f"{path}: the {side} dictionary {owner} ({found['entries']} entries, SHA-256 {found['sha256'][:12]}) differs from"
                f" that of the training ({wanted['entries']} entries, SHA-256 {wanted['sha256'][:12]})"
            )
