"""Write the files of a report into its folder.

Files that are not part of a report are never overwritten, and symbolic links are never followed.
"""

import os
import stat
from pathlib import Path

from ...errors import InputError
from ...files import read_text, replacing, why
from .cells import listed, plural

# This file lists the files of a report, one per line. Its first line marks the folder as a report.
_LIST = "files.txt"
_FIRST = "made by fairseq-reservoir report"
_LONGEST_LIST = 1 << 16
TABLES = (
    *("results", "choices", "over_seeds", "named", "to_best", "to_target", "steps_or_speed"),
    *("aucc", "bootstrap", "against", "sizes", "runs"),
)
_AXES = ("seconds", "updates", "tokens", "flops")
FIGURES = (
    *("over_seeds", "over_seeds_bleu", "over_seeds_test_loss", "steps_or_speed", "against", "bytes"),
    *(f"convergence_{axis}" for axis in _AXES),
)
# All files that a report can write. A report deletes no other file, even if the list in the folder names it.
OURS = frozenset(
    ["report.md", "index.html"]
    + [f"tables/{name}.{ending}" for name in TABLES for ending in ("md", "tex", "csv")]
    + [f"figures/{name}.{ending}" for name in FIGURES for ending in ("png", "pdf")]
)
_FOLDERS = ("tables", "figures")


def check_out(out: str) -> None:
    """Check that a report can be written to ``out``: a new folder, an empty folder, or the folder of an earlier report.

    Raises:
        InputError: ``out`` is a file, cannot be written to, contains files that are not part of a report, or has a symbolic link in
            place of a subfolder.
    """
    folder = Path(out)
    try:
        if folder.exists() and not folder.is_dir():
            raise InputError(f"--out {out}: is not a folder")
        if folder.is_dir() and any(folder.iterdir()) and _earlier(folder) is None:
            raise InputError(
                f"--out {out}: contains files that do not belong to a report; name a new folder or an empty one"
            )
        _check_kinds(out)
        above = next(parent for parent in [folder, *folder.absolute().parents] if parent.exists())
    except OSError as error:
        raise InputError(f"--out {out}: cannot be written ({why(error)})") from error
    if not os.access(above, os.W_OK | os.X_OK):
        raise InputError(f"--out {out}: {above} cannot be written to")


def write(out: str, files: dict[str, bytes]) -> None:
    """Write the files of a report. Remove files of an earlier report that are not part of the new report.

    Each file is written atomically. A symbolic link in place of a file is replaced, not followed.

    Args:
        out: the folder.
        files: content of each file by its path below ``out``; all paths are in ``OURS``.

    Raises:
        InputError: a file cannot be written.
    """
    assert files.keys() <= OURS, "a table or figure that folder.py does not list"
    folder = Path(out)
    earlier = _earlier(folder) or set()
    _check_kinds(out)  # again, because the folder may have changed since check_out
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _replace(folder / _LIST, _listing({*earlier, *files}))
        for name, content in files.items():
            (folder / name).parent.mkdir(exist_ok=True)
            _replace(folder / name, content)
        for name in earlier - set(files):
            (folder / name).unlink(missing_ok=True)
        _replace(folder / _LIST, _listing(files))
    except OSError as error:
        raise InputError(f"--out {out}: cannot be written ({why(error)})") from error


def description(out: str) -> str:
    """Return a text that lists the files of the report in ``out``, except index.html."""
    names = _earlier(Path(out)) or set()
    tables, figures = (sum(name.endswith(ending) for name in names) for ending in (".csv", ".png"))
    parts = ["report.md (the same page as Markdown)", f"tables/ ({plural(tables, 'table')} as CSV, LaTeX and Markdown)"]
    if figures:
        parts.append(f"figures/ ({plural(figures, 'figure')} as PNG and PDF)")
    return listed(parts)


def _check_kinds(out):
    """Refuse a link or a file in place of a subfolder of the report, and a folder in place of a file of the report."""
    folder = Path(out)
    for name in (*_FOLDERS, _LIST, *sorted(OURS)):
        try:
            mode = (folder / name).lstat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            continue
        if name in _FOLDERS and not stat.S_ISDIR(mode):
            kind = "a symbolic link; reports are not written through links" if stat.S_ISLNK(mode) else "not a folder"
            raise InputError(f"--out {out}: {name} is {kind}. Move it away, or name a different folder")
        if name not in _FOLDERS and stat.S_ISDIR(mode):
            raise InputError(
                f"--out {out}: {name} is a folder, but a report needs a file of this name; move the folder away"
            )


def _listing(names):
    return "\n".join([_FIRST, *sorted(names), ""]).encode()


def _earlier(folder):
    """Return the names of the files of an earlier report in the folder; None if the folder has no report."""
    try:
        first, *names = read_text(folder / _LIST, _LONGEST_LIST).splitlines() or [""]
    except OSError:
        return None
    return OURS.intersection(names) if first == _FIRST else None


def _replace(path, content):
    with replacing(path, "--out: {path} cannot be written ({why})") as temporary:
        temporary.write_bytes(content)
