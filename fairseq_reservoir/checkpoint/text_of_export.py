"""Read the dictionaries and the subword model (text parts) of an export. Needs no torch."""

from ..errors import InputError
from ..text.parts import TextParts
from . import export_file

_ADVICE = (
    "to write an export with dictionaries, run fairseq-reservoir export CHECKPOINT OUT.safetensors"
    " --sentencepiece-model FILE (or --bpe-codes FILE, or --with-text)"
)


def text_of_export(path: str) -> TextParts:
    """Return the dictionaries and the subword model of an export.

    Raises:
        InputError: the file is not an export, is not usable, or has no text parts.
    """
    if not export_file.is_export(path):
        raise InputError(
            f"{path}: is not an export, because the name does not end in {export_file.SUFFIX}; {_ADVICE};"
            " in Python, you can instead give the folder of the dictionaries with data=FOLDER"
        )
    text = export_file.read_text(path)
    if text is None:
        raise InputError(f"{path}: is an export without dictionaries; {_ADVICE}")
    return text
