"""Download of public archives and extraction of single files."""

import gzip
import os
import posixpath
import shutil
import tarfile
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

from prepare.console import InputError, say
from prepare.download import BLOCK, answers, fetch, hash_of, is_digest_of

NOTED = "SHA256SUMS"  # as sha256sum -c reads it


@dataclass(frozen=True)
class Archive:
    """A file to download.

    Attributes:
        size: size in bytes; None if no source states it.
        digest: ``"sha256:..."`` or ``"md5:..."``; None if no source states it.
        copy_size: size of a copy at another address, if ``size`` is None. A different size only causes a note.
    """

    url: str
    size: int | None = None
    digest: str | None = None
    copy_size: int | None = None

    @property
    def name(self):
        return posixpath.basename(self.url)


def locate(archives, given, mirror, folder):
    """Find ``archives`` among the files and folders ``given`` (--archive), or download them into ``folder``.

    A given file that differs from the public archive is used, with a note. If no source states the digest of a download, its
    SHA-256 is written to ``folder/SHA256SUMS`` the first time and compared afterwards. Public addresses are tried over HTTPS
    first. HTTP is only used for files with a digest, and for a ``mirror``.

    Returns:
        dict: path by name.

    Raises:
        InputError: a given path does not exist or is not one of the archives, a file without a digest cannot be downloaded
            over HTTPS, or a download differs from the first one.
    """
    paths = {}
    for path in map(Path, given):
        if path.is_dir():
            paths |= {archive.name: path / archive.name for archive in archives if (path / archive.name).is_file()}
        elif not path.is_file():
            raise InputError(f"--archive {path}: there is no such file or folder")
        elif len(archives) == 1:
            paths[archives[0].name] = path
        elif path.name in {archive.name for archive in archives}:
            paths[path.name] = path
        else:
            raise InputError(
                f"--archive {path}: expected {', '.join(archive.name for archive in archives)}, or a folder of them"
            )
    for archive in archives:
        is_given = archive.name in paths
        path = paths.setdefault(archive.name, folder / archive.name)
        if not path.exists():
            folder.mkdir(parents=True, exist_ok=True)
            url = f"{mirror.rstrip('/')}/{archive.name}" if mirror else _over_https(archive)
            fetch(url, path, archive.size, archive.digest)
        if not is_given and not archive.digest:
            _compare_with_noted(path)
        size = archive.size or archive.copy_size
        if size not in (None, path.stat().st_size):
            say(f"note: {path} has {path.stat().st_size:,} bytes, the public archive has {size:,}")
        elif is_given and archive.digest:
            verdict = "the" if is_digest_of(path, archive.digest) else "not the"
            say(f"note: {path} is {verdict} public archive, by its {archive.digest.partition(':')[0]}")
    return paths


def _over_https(archive):
    """Return the archive's address with HTTPS if its server supports it, or with HTTP if the archive has a digest.

    Raises:
        InputError: HTTPS does not work, and without a digest a replaced file would not be detected.
    """
    secure = archive.url.replace("http://", "https://", 1)
    if secure == archive.url or answers(secure):
        return secure
    if not archive.digest:
        raise InputError(
            f"{secure} does not answer, and {archive.name} is not downloaded over HTTP because no source states its checksum: try again, "
            "name another address by --mirror, or download it in another way and name the file by --archive"
        )
    say(f"note: {secure} does not answer; HTTP is used, and the {archive.digest.partition(':')[0]} is compared")
    return archive.url


def _compare_with_noted(path):
    """Compare a file with its SHA-256 in ``SHA256SUMS``, or add it there."""
    sums, found = path.parent / NOTED, hash_of(path, "sha256")
    lines = sums.read_text().splitlines() if sums.exists() else []
    noted = {line[66:]: line[:64] for line in lines}
    expected = noted.setdefault(path.name, found)
    if expected != found:
        raise InputError(
            f"{path}: its sha256 is {found}, but was {expected} when it was first used ({sums}): delete it to download it again, or its "
            f"line there if the new one is to be trusted"
        )
    if len(noted) > len(lines):
        say(f"note: sha256 of {path.name} is {found}, noted in {sums}; no source states it")
        part = sums.with_name(f"{NOTED}.{os.getpid()}.part")
        part.unlink(missing_ok=True)
        with open(part, "x") as file:
            file.write("".join(f"{digest}  {name}\n" for name, digest in sorted(noted.items())))
        part.replace(sums)


def stamp(path):
    """Return path, size and time of a file, which change when the file does; JSON."""
    status = path.stat()
    return [str(path.resolve()), status.st_size, status.st_mtime_ns]


def extract(path, members, folder):
    """Write ``members`` of the .tgz or .zip at ``path`` to ``folder``, under their base names.

    Raises:
        InputError: the archive is truncated or damaged, or lacks a member.
    """
    try:
        found = (_from_zip if path.suffix == ".zip" else _from_tar)(path, members, folder)
    except (EOFError, zlib.error, gzip.BadGzipFile, tarfile.TarError, zipfile.BadZipFile) as error:
        advice = "delete it and run again, or name another --archive"
        raise InputError(f"{path} is truncated or damaged ({error}): {advice}") from None
    if missing := [name for name in members if name not in found]:
        others = f" (nor {len(missing) - 1} other files)" if len(missing) > 1 else ""
        raise InputError(f"{path} has no {missing[0]}{others}: is it the right archive?")


def _from_tar(path, members, folder):
    found = set()
    with gzip.open(path) as plain:
        with tarfile.open(fileobj=plain, mode="r|") as tar:
            for entry in tar:
                name = posixpath.normpath(entry.name)
                if entry.isfile() and name in members:
                    _write(tar.extractfile(entry), folder, name)
                    found.add(name)
        while plain.read(BLOCK):  # read to the end, because gzip's checksum is there
            pass
    return found


def _from_zip(path, members, folder):
    with zipfile.ZipFile(path) as archive:
        found = set(members) & set(archive.namelist())
        for name in found:
            with archive.open(name) as source:
                _write(source, folder, name)
    return found


def _write(source, folder, name):
    with open(folder / posixpath.basename(name), "wb") as target:
        shutil.copyfileobj(source, target, BLOCK)
