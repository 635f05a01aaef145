"""CTranslate2's folder of a model, by way of a checkpoint of fairseq's own ``transformer``."""

import shutil
import tempfile
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..files import check_out, replacing, replacing_folder
from . import dictionaries, packed_file
from .materialize import materialize
from .opened import open_checkpoint
from .text.parts import TextParts

_MODEL = "model.bin"  # in every folder of CTranslate2
_PIECES = {"sentencepiece": "sentencepiece.model", "byte_pairs": "bpe.codes"}


def convert(
    checkpoint: str,
    folder: str,
    out: str | None = None,
    quantization: str | None = None,
    data: str | None = None,
    force: bool = False,
) -> str:
    """Writes CTranslate2's model of a checkpoint or an export, and the file of its pieces beside it if the export carries one.

    Args:
        checkpoint: of a model that ``materialize`` takes.
        folder: to write.
        out: file to which the checkpoint of fairseq's transformer is written, too.
        quantization: type in which CTranslate2 stores weights, float32 if None.
        data: folder of the dictionaries, if not the one trained on; an export may carry them.
        force: replace ``folder``, if it is one of CTranslate2's, and ``out``.

    Returns:
        What was written, in a line each.

    Raises:
        InputError: the package is not installed, a file is not usable, or fairseq's ``transformer`` or CTranslate2 cannot represent the
            model.
    """
    package = _package()
    _check_folder(folder, force)
    if out:
        check_out(out, force, ".pt")
    if quantization and quantization not in package.specs.model_spec.ACCEPTED_MODEL_TYPES:
        raise InputError(
            f"--quantization {quantization}: choose from {', '.join(package.specs.model_spec.ACCEPTED_MODEL_TYPES)}"
        )
    is_export = str(checkpoint).endswith(packed_file.SUFFIX) and Path(checkpoint).is_file()
    text = packed_file.read_text(checkpoint) if is_export else None
    with tempfile.TemporaryDirectory() as temporary, replacing_folder(folder) as written:
        plain = Path(temporary, "plain.pt")
        said = materialize(checkpoint, str(plain), force=True)
        languages = _write_dictionaries(checkpoint, Path(temporary), text, data)
        converter = package.converters.FairseqConverter(str(plain), temporary, *languages)
        try:
            converter.convert(str(written), quantization=quantization, force=True)
        except (ValueError, NotImplementedError, RuntimeError) as error:
            reason = " ".join(str(error).split())
            raise InputError(f"CHECKPOINT {checkpoint}: CTranslate2 cannot represent the model: {reason}") from error
        if text and text.model:
            (written / _PIECES[text.kind]).write_bytes(text.model)
        if out:
            with replacing(out) as copy:
                shutil.copyfile(plain, copy)
    size = Path(folder, _MODEL).stat().st_size
    lines = [said.replace(str(plain), out)] if out else []
    return "\n".join(
        [*lines, f"{folder}: {size:,} bytes, CTranslate2's model{f' in {quantization}' if quantization else ''}"]
    )


def _package() -> Any:
    try:
        import ctranslate2
        import ctranslate2.converters
    except ImportError as error:
        raise InputError(
            "--ctranslate2 needs the package ctranslate2, which is not installed: pip install ctranslate2"
        ) from error
    return ctranslate2


def _check_folder(folder: str, force: bool) -> None:
    path = Path(folder)
    if not path.absolute().parent.is_dir():
        raise InputError(f"--ctranslate2 {folder}: {path.absolute().parent} is no folder")
    if path.exists() and not force:
        raise InputError(f"--ctranslate2 {folder}: exists; --force replaces it")
    if path.exists() and not (path / _MODEL).is_file() and not (path.is_dir() and not any(path.iterdir())):
        raise InputError(f"--ctranslate2 {folder}: exists and is no folder of CTranslate2; --force replaces no other")


def _write_dictionaries(checkpoint: str, folder: Path, text: TextParts | None, data: str | None) -> tuple[str, str]:
    """The dictionaries where the converter looks for them; returns the names of the languages."""
    if text and not data:
        for language, words in zip(text.languages, (text.source, text.target)):
            (folder / f"dict.{language}.txt").write_text("".join(f"{word} 1\n" for word in words), encoding="utf-8")
        return text.languages
    config = open_checkpoint(checkpoint).config
    task = dictionaries.task_of_config(config, data)
    for language, dictionary in (
        (task.cfg.source_lang, task.source_dictionary),
        (task.cfg.target_lang, task.target_dictionary),
    ):
        dictionary.save(str(folder / f"dict.{language}.txt"))
    return task.cfg.source_lang, task.cfg.target_lang
