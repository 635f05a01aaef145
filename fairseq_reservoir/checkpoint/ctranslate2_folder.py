"""Convert a model to CTranslate2. An intermediate step writes a checkpoint of fairseq's own ``transformer``."""

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..files import check_out, replacing, replacing_folder
from ..text.parts import TextParts
from . import dictionaries, export_file
from .materialize import materialize
from .meta_checkpoint import Checkpoint, open_checkpoint
from .origin import dictionaries_of
from .plain_transformer import flag_not_in_ctranslate2

_MODEL = "model.bin"  # in every CTranslate2 model
_PIECES = {"sentencepiece": "sentencepiece.model", "byte_pairs": "bpe.codes"}


def convert(
    checkpoint: str,
    folder: str,
    out: str | None = None,
    quantization: str | None = None,
    data: str | None = None,
    force: bool = False,
) -> str:
    """Write a checkpoint or an export as a CTranslate2 model. The folder also gets the subword model, if the export has one.

    Args:
        checkpoint: path of a checkpoint or an export that ``materialize`` accepts.
        folder: path of the folder to write.
        out: path at which to keep the intermediate checkpoint of fairseq's ``transformer``. By default it is deleted.
        quantization: type of the stored weights, by default float32.
        data: folder of the dictionaries. By default they are read from the export or from the data folder of the training.
        force: replace ``out``, and ``folder`` if it is a CTranslate2 model.

    Returns:
        A line about each written file.

    Raises:
        InputError: the package ctranslate2 is not installed, a file is not usable, or the model cannot be converted to fairseq's
            ``transformer`` or to CTranslate2.
    """
    package = _package()
    _check_folder(folder, force, checkpoint, out)
    if out:
        check_out(out, force, ".pt", checkpoint)
    types = package.specs.model_spec.ACCEPTED_MODEL_TYPES
    if quantization and quantization not in types:
        raise InputError(f"--quantization {quantization}: choose from {', '.join(types)}")
    source = open_checkpoint(checkpoint)
    _check_options(source)
    text = export_file.text_of(checkpoint)
    with (
        tempfile.TemporaryDirectory() as temporary,
        replacing_folder(folder, "--ctranslate2 {path}: cannot be written ({why})") as written,
    ):
        plain = Path(temporary, "plain.pt")
        line = materialize(checkpoint, str(plain), force=True)
        languages = _write_dictionaries(source, Path(temporary), text, data)
        converter = package.converters.FairseqConverter(str(plain), temporary, *languages)
        try:
            converter.convert(str(written), quantization=quantization, force=True)
        except (ValueError, NotImplementedError, RuntimeError, AttributeError) as error:
            reason = " ".join(str(error).split())
            raise InputError(f"CHECKPOINT {checkpoint}: CTranslate2 cannot represent the model: {reason}") from error
        if text and text.model:
            (written / _PIECES[text.kind]).write_bytes(text.model)
        if out:
            with replacing(out) as copy:
                shutil.copyfile(plain, copy)
    size = Path(folder, _MODEL).stat().st_size
    lines = [line.replace(str(plain), out)] if out else []
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


def _check_options(source: Checkpoint) -> None:
    """Refuse options that CTranslate2's Transformer does not support.

    CTranslate2 would ignore some of these options without an error. Its outputs would then differ from those of fairseq.
    """
    if flag := flag_not_in_ctranslate2(source.config.model):
        raise InputError(
            f"CHECKPOINT {source.path}: CTranslate2 cannot represent the model: it was trained with {flag}"
        )


def _check_folder(folder: str, force: bool, checkpoint: str, out: str | None) -> None:
    path = Path(folder)
    parent = path.absolute().parent
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise InputError(f"--ctranslate2 {folder}: {parent} is not a writable folder")
    if path.is_symlink() or path.resolve() == Path.cwd():
        raise InputError(
            f"--ctranslate2 {folder}: is {'a link' if path.is_symlink() else 'the current folder'}; name another folder"
        )
    if path.exists() and not force:
        raise InputError(f"--ctranslate2 {folder}: exists; --force replaces it")
    if path.exists() and not (path / _MODEL).is_file() and not (path.is_dir() and not any(path.iterdir())):
        raise InputError(
            f"--ctranslate2 {folder}: exists and is not a CTranslate2 model; --force only overwrites CTranslate2 models"
        )
    for argument, name in (("CHECKPOINT", checkpoint), ("OUT", out)):
        if name and path.resolve() in Path(name).resolve().parents:
            raise InputError(
                f"{argument} {name}: is in the folder that --ctranslate2 {folder} replaces; name another folder for --ctranslate2"
            )


def _write_dictionaries(source: Checkpoint, folder: Path, text: TextParts | None, data: str | None) -> tuple[str, str]:
    """Write the dictionaries for the converter, and return the names of the languages."""
    if text and not data:
        for language, words in zip(text.languages, (text.source, text.target)):
            (folder / f"dict.{language}.txt").write_text("".join(f"{word} 1\n" for word in words), encoding="utf-8")
        return text.languages
    task = dictionaries.task_of_config(source.config, data)
    dictionaries.check(dictionaries.folder_of(source.config, data), dictionaries_of(source.state), task)
    for language, dictionary in (
        (task.cfg.source_lang, task.source_dictionary),
        (task.cfg.target_lang, task.target_dictionary),
    ):
        dictionary.save(str(folder / f"dict.{language}.txt"))
    return task.cfg.source_lang, task.cfg.target_lang
