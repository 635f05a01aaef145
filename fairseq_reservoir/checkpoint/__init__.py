"""Convert a checkpoint into an export (seed, masks and trained tensors) or into a plain fairseq checkpoint.

Importing this package and calling ``read_state_dict`` need torch and safetensors, but not fairseq.
"""

import os
from typing import TYPE_CHECKING, Any

from .export_file import is_export
from .reader import read_state_dict

if TYPE_CHECKING:
    from fairseq.hub_utils import GeneratorHubInterface

__all__ = ["load", "load_translator", "read_state_dict"]


def load(
    path: str | os.PathLike[str], data: str | os.PathLike[str] | None = None, **overrides: Any
) -> "GeneratorHubInterface":
    """Load an export or a checkpoint to translate.

    With an export that contains dictionaries and a subword model, ``translate`` accepts plain text. With a checkpoint, it accepts
    dictionary tokens separated by spaces. To translate plain text with a checkpoint, name a subword model:
    ``load("checkpoint_best.pt", bpe="sentencepiece", sentencepiece_model="joint.model")``.

    Args:
        path: path of an export (``*.safetensors``) or a checkpoint.
        data: folder with the dictionaries. For a checkpoint, the default is the folder of its training data.
        overrides: values of fairseq's options by name, such as ``lenpen``. ``beam`` is an argument of ``translate`` instead. ``bpe``,
            ``tokenizer`` and their options are refused for an export with its own subword model, unless ``data`` is given. With ``data``,
            fairseq uses them and ignores the subword model in the export.

    Returns:
        fairseq's ``GeneratorHubInterface``. ``translate`` takes a sentence or a list of sentences, and ``models[0]`` is the model.
        For an export, the object is a ``Translator``, which is a subclass.

    Raises:
        InputError: the file or the folder is missing or not usable, an option is unknown, or the dictionaries differ from those of the
            training.

    Example:
        >>> from fairseq_reservoir.api import load
        >>> translator = load("model.safetensors")
        >>> german = translator.translate(["seventeen", "one hundred and two"])
        >>> len(german)
        2
    """
    path = os.fspath(path)
    if data is None and not is_export(path):
        data = _folder_of_training(path)
    return load_translator(path, None if data is None else os.fspath(data), **overrides)


def _folder_of_training(path: str) -> str:
    """Return the data folder of a checkpoint's training. If the training had several data folders, return the first one."""
    from fairseq import checkpoint_utils, utils

    from ..errors import InputError
    from ..files import check_file
    from . import damage

    check_file("path", path)
    with damage.reading(path):
        state = checkpoint_utils.load_checkpoint_to_cpu(path)
    folder = getattr((state.get("cfg") or {}).get("task"), "data", None)
    if not folder:
        raise InputError(
            f"data: not given, and {path} does not name a data folder; give the folder with the dictionaries as data=FOLDER"
        )
    return str(utils.split_paths(folder)[0])


def load_translator(path: str, data: str | None = None, **overrides: Any) -> "GeneratorHubInterface":
    """Load a model to translate, like ``load``. Without ``data``, the file must be an export with dictionaries.

    Raises:
        InputError: as ``load``, or the file contains no dictionaries and ``data`` is None.
    """
    from pathlib import Path

    from fairseq import hub_utils
    from omegaconf import MissingMandatoryValue

    from ..errors import InputError
    from ..files import check_file
    from . import dictionaries

    _check_overrides(overrides)
    file = Path(path).absolute()
    check_file("path", file)
    if data is None:
        from .translator import open_translator

        return open_translator(str(file), **overrides)
    folder = Path(data).absolute()
    if not folder.is_dir():
        raise InputError(f"data {folder}: no such folder; give the folder with the dictionaries of the model")
    if os.pathsep in str(folder):
        raise InputError(
            f"data {folder}: fairseq splits this path at {os.pathsep!r} into two folders; rename the folder"
        )
    try:
        found = hub_utils.from_pretrained(str(file.parent), _OneFile(file.name), str(folder), **overrides)
    except Exception as error:
        # fairseq raises a plain Exception if it cannot infer the languages from the names of the files.
        if type(error) is not Exception and not isinstance(error, FileNotFoundError):
            raise
        raise InputError(dictionaries.missing_in(f"data {folder}", error)) from error
    try:
        return hub_utils.GeneratorHubInterface(found["args"], found["task"], found["models"])
    except (MissingMandatoryValue, OSError) as error:  # in the constructor of the subword model
        name = getattr(found["args"].bpe, "_name", None)
        raise InputError(f"bpe {name}: {str(error).splitlines()[0]}") from error


def _check_overrides(overrides: dict[str, Any]) -> None:
    """Refuse a keyword that is no option of fairseq or would be ignored, and an unknown ``bpe`` or ``tokenizer``."""
    from fairseq.registry import REGISTRIES

    from ..errors import InputError
    from .model_path_checks import refuse_unknown_options

    refuse_unknown_options("load", overrides, "not an option of fairseq")
    for argument in ("beam", "nbest"):  # fairseq's interface has its own default of beam, and returns all hypotheses
        if argument in overrides:
            raise InputError(f"load: {argument!r}: give it to translate or hypotheses, as in translate(text, beam=3)")
    for choice in ("bpe", "tokenizer"):
        name, known = overrides.get(choice), REGISTRIES[choice]["registry"]
        if name is not None and name not in known:
            raise InputError(f"{choice} {name}: must be one of {', '.join(sorted(known))}")


class _OneFile(str):
    """File name that fairseq does not split at colons, because ``split`` is overridden."""

    def split(self, *_: Any) -> list[str]:
        return [self]
