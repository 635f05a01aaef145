"""Random damage to a folder: other types of files, links to a foreign folder, and corrupted content."""

import os
import random
import re
import shutil
import signal
import socket
from contextlib import contextmanager
from pathlib import Path

CONTENTS = (
    b"",
    b"\n",
    b"\xff\xfe\x00",
    b"\0" * 100,
    b"[" * 100_000,
    b'{"a": ' * 50_000,
    b"9" * 5_000,
    b"\r",
    b"dne\n",
    b"failed\n",
    b"running\n",
    b"running train\n",
    b"failed train x y z\n",
    b"done\n",
    b": , bytes (, of data, whose entropy is ,)\n",
    b"Loss (base 2): ...\n",
    b'{"score": 1e999}\n',
    b"host 99999999999999999999 0\n",
    b"host 999999999999 0 0 [\n",
    b"made by fairseq-reservoir report\n../victim/own.txt\ntables/own.txt\n/etc/hostname\n",
)
NUMBERS = (b"9" * 5_000, b"-1", b"1e400", b"nan", b"0x" + b"f" * 5_000, b",", b"", b"1" * 16, b"\xd9\xa3", b'"\\ud800"')
TEXTS = (b"\r", b"\n", b"\0", b"\xff", b"**{'a': 1}, ", b"'", b'"', b"{", b"}", b"\xe2\x80\xa8", b"\\", b"\t", b"D-5\t")


def make_victim(folder: Path) -> Path:
    """Create a foreign folder next to the tested one, with files that links may point to."""
    for name in ("own.txt", "lock", "state", "tables/aucc.csv", ".ssh/id"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("precious\n")
    return folder


def snapshot(folder: Path) -> dict[str, bytes | None]:
    """Content of every file below a folder; None for a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def damage(dice: random.Random, path: Path, victim: Path) -> str:
    """Replace a file or a folder by something else, or create it. Return a description."""
    kinds = ["content", "content", "bytes", "number", "text", "cut", "folder", "fifo", "socket", "dangling", "loop"]
    kinds += ["link", "link to a folder", "hard link", "no UTF-8", "gone"]
    kind = dice.choice(kinds)
    content = path.read_bytes() if path.is_file() else b""
    if kind == "no UTF-8" and path.exists():
        path.rename(path.with_name(os.fsdecode(b"\xe9") + path.name))
        return f"{path}: {kind}"
    if kind in ("bytes", "number", "text", "cut", "no UTF-8") and not content:
        kind = "content"
    shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink(missing_ok=True)
    if kind == "folder":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as one, working_in(path.parent):
            one.bind(path.name)
    elif kind in ("dangling", "loop", "link", "link to a folder"):
        ends = {"dangling": victim / "not there", "loop": path, "link": victim / "own.txt", "link to a folder": victim}
        path.symlink_to(ends[kind])
    elif kind == "hard link":
        path.hardlink_to(victim / "own.txt")
    elif kind != "gone":
        new = dice.choice(CONTENTS) if kind == "content" else _changed(dice, kind, content)
        path.write_bytes(new)
        return f"{path}: {kind} {new[:60]!r}"
    return f"{path}: {kind}"


def _changed(dice, kind, content):
    place = dice.randrange(len(content))
    if kind == "cut":
        return content[:place]
    if kind == "bytes":
        changed = bytearray(content)
        for _ in range(20):
            changed[dice.randrange(len(changed))] = dice.randrange(256)
        return bytes(changed)
    if kind == "number" and (numbers := list(re.finditer(rb"\d+", content))):
        number = dice.choice(numbers)
        return content[: number.start()] + dice.choice(NUMBERS) + content[number.end() :]
    return content[:place] + dice.choice(TEXTS) + content[place:]


@contextmanager
def working_in(folder):
    """Run the body in a folder, because the name of a socket has at most 107 bytes."""
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@contextmanager
def deadline(seconds: int, what: str):
    """Raise AssertionError if the body takes longer."""

    def end(number, frame):
        raise AssertionError(f"hangs: {what}")

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
