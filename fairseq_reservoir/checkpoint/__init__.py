"""Conversions of a checkpoint: exports of seed, masks and trained tensors, and plain fairseq checkpoints.

Importing this, and ``read_state_dict``, needs torch and safetensors but not fairseq.
"""

from typing import Any

from .reader import read_state_dict

__all__ = ["load_translator", "read_state_dict"]


def load_translator(path: str, data: str | None = None, **overrides: Any) -> Any:
    """A model ready to translate: ``load_translator("model.safetensors").translate("The device is not available")``.

    An export that carries its dictionaries and pieces needs no ``data``, and takes text. With ``data``, or of a checkpoint, a
    sentence is words of the dictionary between blanks, unless fairseq's options say what cuts it.

    Args:
        path: export or checkpoint. Like ``data``, relative to the current folder.
        data: folder of the dictionaries.
        overrides: options of the model by name, and with ``data`` fairseq's, such as ``bpe="sentencepiece"``.

    Returns:
        fairseq's ``GeneratorHubInterface``; without ``data`` a ``Translator``, which is one.

    Raises:
        InputError: file or folder are not there or not usable, or the dictionaries are not those of the model.
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
        raise InputError(f"data {folder}: no such folder; it must hold the dictionaries of the model")
    if os.pathsep in str(folder):
        raise InputError(
            f"data {folder}: fairseq takes what is around {os.pathsep!r} for two folders; give it another name"
        )
    try:
        found = hub_utils.from_pretrained(str(file.parent), _OneFile(file.name), str(folder), **overrides)
    except Exception as error:
        # Of no class of its own: there are no languages in the names of the files.
        if type(error) is not Exception and not isinstance(error, FileNotFoundError):
            raise
        raise InputError(f"data {folder}: does not hold the dictionaries of the model ({error})") from error
    return hub_utils.GeneratorHubInterface(found["args"], found["task"], found["models"])


class _OneFile(str):
    """The name of one file where fairseq expects several around colons."""

    def split(self, *_: Any) -> list[str]:
        return [self]
