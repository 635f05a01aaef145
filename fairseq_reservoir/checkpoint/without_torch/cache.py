"""Cache of CTranslate2 models. An export has one folder for each combination of a converter version and a CTranslate2 version.

The name of a folder ends in one hash of the export's bytes and both versions. The file ``complete`` contains the
SHA-256 of all other files in the folder. A folder is written under a temporary name and renamed. If a folder is damaged, the export is
converted again.
"""

import hashlib
import logging
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ...errors import InputError
from ...files import replacing_folder, sync, why
from ...text.parts import TextParts
from .conversion import CONVERTER_VERSION, convert

logger = logging.getLogger(__name__)
VARIABLE = "FAIRSEQ_RESERVOIR_CACHE"
_COMPLETE = "complete"


@contextmanager
def model_folder(path: str, text: TextParts) -> Iterator[Path]:
    """Context manager that yields the folder of an export's CTranslate2 model. Convert the export if no valid folder is cached.

    If there is no cache or it cannot be written, a temporary folder is used and deleted at the end.

    Raises:
        InputError: the file is not usable, or CTranslate2 cannot represent the model of the file.
    """
    cache = _cache()
    folder = (cache or Path()) / f"{Path(path).stem[:40]}-{_key(path)}"
    if cache and _is_valid(folder):
        logger.info("%s: uses the CTranslate2 model of an earlier run, %s", path, folder)
        yield folder
        return
    with _temporary_folder() as temporary:
        converted = temporary / "model"
        _write(path, text, converted)
        if cache is None:
            logger.info(
                "%s: the CTranslate2 model is not kept, because there is no home folder; set %s", path, VARIABLE
            )
            yield converted
            return
        if _is_valid(folder):  # written by another process in the meantime, and perhaps in use
            yield folder
            return
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            with replacing_folder(str(folder), "{path}: cannot be written ({why})") as written:
                shutil.copytree(converted, written)
                for file in written.iterdir():
                    sync(file)
        except (InputError, OSError) as error:
            if not _is_valid(folder):  # another process may have written it at the same time
                logger.info("%s: the CTranslate2 model is not kept for later runs: %s", path, error)
                yield converted
                return
    logger.info("%s: converted to a CTranslate2 model, which is kept for later runs: %s", path, folder)
    yield folder


def _write(path: str, text: TextParts, folder: Path) -> None:
    model = convert(path, text)
    try:
        folder.mkdir()
        model.save(str(folder))
        (folder / _COMPLETE).write_text(_hash_of_files(folder))
    except OSError as error:
        raise InputError(f"temporary folder {folder.parent}: cannot be written ({why(error)})") from error


@contextmanager
def _temporary_folder() -> Iterator[Path]:
    try:
        temporary = tempfile.TemporaryDirectory(prefix="fairseq_reservoir-")
    except OSError as error:
        raise InputError(f"TMPDIR: no folder for temporary files can be written ({why(error)})") from error
    with temporary as name:
        yield Path(name)


def _is_valid(folder: Path) -> bool:
    try:
        return (folder / _COMPLETE).read_text() == _hash_of_files(folder)
    except (OSError, UnicodeDecodeError):
        return False


def _key(path: str) -> str:
    import ctranslate2

    versions = f"{CONVERTER_VERSION}\0{ctranslate2.__version__}"
    return hashlib.sha256(f"{_hash(Path(path))}\0{versions}".encode()).hexdigest()[:32]


def _hash_of_files(folder: Path) -> str:
    files = sorted(file for file in folder.iterdir() if file.name != _COMPLETE)
    return hashlib.sha256("\0".join(f"{file.name}\0{_hash(file)}" for file in files).encode()).hexdigest()


def _hash(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _cache() -> Path | None:
    """Return the folder of all cached models: FAIRSEQ_RESERVOIR_CACHE, or a folder in the user's cache folder.

    Return None if the user has no home folder, as in some containers.
    """
    if given := os.environ.get(VARIABLE):
        return Path(given)
    if os.name == "nt":
        base = os.environ.get("LOCALAPPDATA") or "~\\AppData\\Local"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    try:
        return Path(base).expanduser() / "fairseq_reservoir" / "ctranslate2"
    except RuntimeError:
        return None
