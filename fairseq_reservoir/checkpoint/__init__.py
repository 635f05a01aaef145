"""Convert a checkpoint into an export (seed, masks and trained tensors) or into a plain fairseq checkpoint.

Importing this package and calling ``read_state_dict`` need torch and safetensors, but not fairseq.
"""

from typing import Any

from .reader import read_state_dict

__all__ = ["load_translator", "read_state_dict"]


def load_translator(path: str, data: str | None = None, **overrides: Any) -> Any:
    """Load a model to translate: ``load_translator("model.safetensors").translate("The device is not available")``.

    An export with dictionaries and subword model needs no ``data``, and translates text. With ``data`` a sentence is dictionary
    tokens separated by spaces, unless fairseq's options name a tokenizer or a subword model.

    Args:
        path: export or checkpoint. Like ``data``, relative to the current folder.
        data: folder of the dictionaries.
        overrides: options of the model by name, and with ``data`` options of fairseq, such as ``bpe="sentencepiece"``.

    Returns:
        fairseq's ``GeneratorHubInterface``; without ``data`` a ``Translator``, which is a subclass.

    Raises:
        InputError: file or folder are missing or not usable, or the dictionaries are not those of the model.
    """
    import os
    from pathlib import Path

    from fairseq import hub_utils

    from ..errors import InputError
    from ..files import check_file

    file = Path(path).absolute()
    check_file("path", file)
    if data is None:
        from .translator import open_translator

        return open_translator(str(file), **overrides)
    folder = Path(data).absolute()
    if not folder.is_dir():
        raise InputError(f"data {folder}: no such folder; it must contain the dictionaries of the model")
    if os.pathsep in str(folder):
        raise InputError(
            f"data {folder}: fairseq splits the name at {os.pathsep!r} into two folders; rename the folder"
        )
    try:
        found = hub_utils.from_pretrained(str(file.parent), _OneFile(file.name), str(folder), **overrides)
    except Exception as error:
        # fairseq raises a plain Exception if the names of the files have no languages.
        if type(error) is not Exception and not isinstance(error, FileNotFoundError):
            raise
        raise InputError(f"data {folder}: does not contain the dictionaries of the model ({error})") from error
    return hub_utils.GeneratorHubInterface(found["args"], found["task"], found["models"])


class _OneFile(str):
    """The name of a single file. fairseq would split it at colons."""

    def split(self, *_: Any) -> list[str]:
        return [self]
