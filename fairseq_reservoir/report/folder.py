"""The folder of a report: written whole, and never over something else."""

import os
from pathlib import Path

from ..errors import InputError
from ..files import replacing

# Names the files of a report, one per line after the first; it says that the folder is ours.
_LIST = "files.txt"
_FIRST = "made by fairseq-reservoir report"


def check_out(out: str) -> None:
    """Refuse a folder that holds something else.

    Raises:
        InputError: ``out`` is a file, cannot be written, or is a folder with other things than an earlier report.
    """
    folder = Path(out)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--out {out}: is no folder")
    if folder.is_dir() and any(folder.iterdir()) and _earlier(folder) is None:
        raise InputError(f"--out {out}: holds something else than a report; name a new or empty folder")
    above = next(parent for parent in [folder, *folder.absolute().parents] if parent.exists())
    if not os.access(above, os.W_OK | os.X_OK):
        raise InputError(f"--out {out}: {above} cannot be written to")


def write(out: str, files: dict[str, bytes]) -> None:
    """Write ``files`` (by path below ``out``) and take away those of an earlier report that are not among them.

    Each is written to a temporary name, synchronised and renamed.

    Raises:
        InputError: the disk refuses one.
    """
    folder = Path(out)
    earlier = _earlier(folder) or []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _replace(folder / _LIST, _listing({*earlier, *files}))
        for name, content in files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            _replace(folder / name, content)
        for name in set(earlier) - set(files):
            (folder / name).unlink(missing_ok=True)
        _replace(folder / _LIST, _listing(files))
    except OSError as error:
        raise InputError(f"--out {out}: cannot be written ({error.strerror or error})") from error


def _listing(names):
    return "\n".join([_FIRST, *sorted(names), ""]).encode()


def _earlier(folder):
    """The files of the report that is there, None if none is."""
    try:
        first, *names = (folder / _LIST).read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError):
        return None
    inside = [name for name in names if not Path(name).is_absolute() and ".." not in Path(name).parts]
    return inside if first == _FIRST else None


def _replace(path, content):
    with replacing(path, "--out: {path} cannot be written ({why})") as temporary:
        temporary.write_bytes(content)
