"""Convert a checkpoint into an export (seed, masks and trained tensors) or into a plain fairseq checkpoint.

Importing this package and calling ``read_state_dict`` need torch and safetensors, but not fairseq.
"""

from typing import Any

from .reader import read_state_dict

__all__ = ["load_translator", "read_state_dict"]


def load_translator(path: str, data: str | None = None, **overrides: Any) -> Any:
    """Load a model to translate: ``load_translator("model.safetensors").translate("The device is not available")``.

    Without ``data``, the model translates plain text. This needs an export that contains dictionaries and a subword model. With
    ``data``, a sentence must be given as dictionary tokens separated by spaces, unless fairseq's options name a tokenizer or a
    subword model.

    Args:
        path: path of an export or a checkpoint. Both paths may be relative to the current folder.
        data: path of the folder with the dictionaries.
        overrides: values of the model's options by name. With ``data`` also fairseq's options, such as ``bpe="sentencepiece"``.

    Returns:
        fairseq's ``GeneratorHubInterface``; without ``data`` its subclass ``Translator``.

    Raises:
        InputError: the file or the folder is missing or not usable, or the dictionaries differ from the model's.
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
        raise InputError(f"data {folder}: no such folder; name the folder with the dictionaries of the model")
    if os.pathsep in str(folder):
        raise InputError(
            f"data {folder}: fairseq splits the name at {os.pathsep!r} into two folders; rename the folder"
        )
    try:
        found = hub_utils.from_pretrained(str(file.parent), _OneFile(file.name), str(folder), **overrides)
    except Exception as error:
        # fairseq raises a plain Exception if it cannot infer the languages from the names of the files.
        if type(error) is not Exception and not isinstance(error, FileNotFoundError):
            raise
        raise InputError(f"data {folder}: does not contain the dictionaries of the model ({error})") from error
    return hub_utils.GeneratorHubInterface(found["args"], found["task"], found["models"])


class _OneFile(str):
    """Name of a single file. It overrides ``split``, because fairseq would split the name at colons."""

    def split(self, *_: Any) -> list[str]:
        return [self]
