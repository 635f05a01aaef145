"""Refuse to start a training from a model with a different dictionary of the same size.

All tensors would fit, but each word would start with the vector of another word (fairseq#4469). Checkpoints of this plugin and exports
record the hashes of their dictionaries. Checkpoints of plain fairseq do not record hashes, so their dictionaries cannot be compared.
"""

import logging
import os
from typing import Any

from fairseq import utils

from ..errors import InputError
from ..options.command_options import DictionaryOptions
from ..options.fairseq_flags import DataFlags
from ..options.for_fairseq.parser import add_flags
from ..options.reading import read
from ..random_tensors import digest

logger = logging.getLogger(__name__)
FLAG = "--allow-other-dictionary"
# Environment variable with the same meaning. Child processes inherit it, and fairseq-hydra-train reads it.
ALLOW = "FAIRSEQ_RESERVOIR_ALLOW_OTHER_DICTIONARY"
# Whether the flag has set the variable in this process.
_set_by_flag = False
_MAKES = {"source": "--srcdict", "target": "--tgtdict, or --srcdict if you use --joined-dictionary"}


def add_flag(parser: Any) -> None:
    """Add the flag to the parser of a training."""
    if FLAG not in parser._option_string_actions:
        add_flags(parser, DictionaryOptions)


def read_flag(flags: Any, is_training: bool) -> None:
    """Store the value of the flag in the environment, so that the processes of a training inherit it.

    If a later training in this process does not have the flag, the value is removed. A variable that the user has set is kept.
    """
    global _set_by_flag
    if read(DictionaryOptions, flags).allow_other_dictionary:
        _set_by_flag = _set_by_flag or not os.environ.get(ALLOW)
        os.environ[ALLOW] = "1"
    elif is_training and _set_by_flag:
        os.environ.pop(ALLOW, None)
        _set_by_flag = False


def refuse_other_dictionary(
    given: str, trained: dict[str, dict[str, Any]], task: Any, sides: tuple[str, ...] = ("source", "target")
) -> None:
    """Refuse a task if its dictionary has the same size as the model's dictionary, but different words.

    Args:
        given: the flag and the file of the model, for messages.
        trained: the model's dictionaries, as ``dictionaries.describe`` returns them; {} if the model's file does not record them.
        task: the task of the training.
        sides: sides ("source", "target") whose embeddings are initialised from the model.

    Raises:
        InputError: a dictionary differs. The message lists the solutions.
    """
    # A multilingual task has one dictionary per language, and the language pair decides which of them are used.
    if hasattr(task, "dicts"):
        return
    if not trained:
        logger.info(
            "%s: does not store a hash of the model's dictionary; make sure that this dictionary equals the one in DATA",
            given,
        )
        return
    for side in sides:
        dictionary = getattr(task, f"{side}_dictionary", None)
        if dictionary is not None:
            refuse_other_words(given, trained.get(side), dictionary, side, _name(task, side))


def refuse_other_words(given: str, trained: dict[str, Any] | None, dictionary: Any, side: str, name: str) -> None:
    """Refuse a dictionary if it has the size of ``trained`` but a different hash. The message calls the dictionary ``name``."""
    if trained is None or trained["entries"] != len(dictionary) or os.environ.get(ALLOW):
        return
    if trained["sha256"] != digest.of_symbols(dictionary.symbols):
        raise InputError(
            f"{given}: the model's {side} dictionary and {name} both have {len(dictionary)} entries, but different words or a different "
            f"order. Each word would start with the vector of another word; prepare DATA with the model's dictionary "
            f"(fairseq-preprocess {_MAKES[side]}), or give {FLAG} (or set {ALLOW}=1) to train anyway"
        )


def _name(task: Any, side: str) -> str:
    """Return the path of a task's dictionary. If there is no file with fairseq's usual name, return a description instead."""
    flags = read(DataFlags, getattr(task, "cfg", None) or getattr(task, "args", None))
    folder = next(iter(utils.split_paths(flags.data or "")), "")
    language = {"source": flags.source_lang, "target": flags.target_lang}[side]
    file = os.path.join(folder, f"dict.{language}.txt" if language else "dict.txt")
    return file if os.path.isfile(file) else f"the {side} dictionary of DATA"
