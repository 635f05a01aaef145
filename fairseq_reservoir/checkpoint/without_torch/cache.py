"""Cached CTranslate2 models: one folder for each export, converter and version of CTranslate2.

The name of a folder is the SHA-256 of the export's bytes and of both versions. The file ``complete`` has the SHA-256 of the model in the
folder. A folder is written under a temporary name and renamed. A damaged one is converted again.
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
from ...files import replacing_folder, sync
from ...text.parts import TextParts
from .conversion import CONVERTER_VERSION, convert

logger = logging.getLogger(__name__)
VARIABLE = "FAIRSEQ_RESERVOIR_CACHE"
_MODEL, _COMPLETE = "model.bin", "complete"


@contextmanager
def model_folder(path: str, text: TextParts) -> Iterator[Path]:
    """Context with the folder of an export's CTranslate2 model. Convert the export if no valid folder is cached.

    If the cache cannot be written, the folder is a temporary one, which is deleted at the end.

    Raises:
        InputError: the file is not usable, or CTranslate2 cannot represent its model.
    """
    folder = _cache() / f"{Path(path).stem[:40]}-{_key(path)}"
    if _is_valid(folder):
        logger.info("%s: CTranslate2 model of an earlier run, %s", path, folder)
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="fairseq_reservoir-") as temporary:
        converted = Path(temporary, "model")
        _write(path, text, converted)
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
    folder.mkdir()
    convert(path, text).save(str(folder))
    (folder / _COMPLETE).write_text(_hash(folder / _MODEL))


def _is_valid(folder: Path) -> bool:
    try:
        return (folder / _COMPLETE).read_text() == _hash(folder / _MODEL)
    except (OSError, UnicodeDecodeError):
        return False


def _key(path: str) -> str:
    import ctranslate2

    versions = f"{CONVERTER_VERSION}\0{ctranslate2.__version__}"
    return hashlib.sha256(f"{_hash(Path(path))}\0{versions}".encode()).hexdigest()[:32]


def _hash(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _cache() -> Path:
    """Return the folder of all cached models: FAIRSEQ_RESERVOIR_CACHE, or a folder in the user's cache folder."""
    if given := os.environ.get(VARIABLE):
        return Path(given)
    if os.name == "nt":
        base = os.environ.get("LOCALAPPDATA") or "~\\AppData\\Local"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "fairseq_reservoir" / "ctranslate2"
