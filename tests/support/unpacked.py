"""Unpack tar archives safely on every Python 3.11. Only 3.11.4 and later check the names of members themselves."""

import shutil
import tarfile
from pathlib import Path, PurePosixPath


def unpack(archive: tarfile.TarFile, folder: Path) -> None:
    """Write the regular files of ``archive`` below ``folder``, which need not exist.

    Raises:
        ValueError: a member is not a regular file or a folder, or its name leads out of ``folder``. Nothing is written then.
    """
    members = archive.getmembers()
    for member in members:
        name = PurePosixPath(member.name)
        if name.is_absolute() or ".." in name.parts or not (member.isreg() or member.isdir()):
            raise ValueError(f"{member.name}: not a file or folder below the archive's own folder")
    for member in members:
        path = folder / member.name
        (path if member.isdir() else path.parent).mkdir(parents=True, exist_ok=True)
        if member.isreg():
            with archive.extractfile(member) as source, open(path, "wb") as target:
                shutil.copyfileobj(source, target)
