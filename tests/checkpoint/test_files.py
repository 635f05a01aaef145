"""Files are written atomically."""

import os
import resource
import stat
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from fairseq_reservoir import cli, files
from fairseq_reservoir.checkpoint import packed_file
from fairseq_reservoir.errors import InputError
from fairseq_reservoir.files import check_out, replacing, replacing_folder, replacing_together, temporary_name
from tests.support.warm_start import be_code, run_function


def test_replaces_at_the_end(tmp_path):
    out = tmp_path / "a.bin"
    out.write_text("old")
    with replacing(out) as temporary:
        temporary.write_text("new")
        assert out.read_text() == "old"
    assert out.read_text() == "new" and list(tmp_path.iterdir()) == [out]


def test_an_error_leaves_the_old_file(tmp_path):
    out = tmp_path / "a.bin"
    out.write_text("old")
    with pytest.raises(RuntimeError), replacing(out) as temporary:
        temporary.write_text("new")
        raise RuntimeError
    assert out.read_text() == "old" and list(tmp_path.iterdir()) == [out]


def write_pair(folder, text):
    with replacing_together([folder / "v.en", folder / "v.de"]) as temporaries:
        for temporary in temporaries:
            temporary.write_text(text)


def read_pair(folder):
    return [path.read_text() if path.exists() else None for path in (folder / "v.en", folder / "v.de")]


def killed_at(step, act):
    """Run ``act`` in a process that dies before its rename number ``step``; return whether it died."""
    child = os.fork()
    if child == 0:
        calls, rename = [], os.replace

        def replace(*names):
            calls.append(names)
            if len(calls) > step:
                os._exit(9)
            return rename(*names)

        os.replace = replace
        try:
            act()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9


def test_a_kill_leaves_no_old_file_beside_a_new_one(tmp_path):
    """Three renames: the old second file moves aside, the new first file takes its place, then the new second file."""
    expected = [["old", "old"], ["old", None], ["new", None]]
    for step, pair in enumerate(expected):
        folder = tmp_path / str(step)
        folder.mkdir()
        write_pair(folder, "old")
        assert killed_at(step, lambda: write_pair(folder, "new"))
        assert read_pair(folder) == pair
        # The file still exists under another name.
        assert {"old", "new"} <= {path.read_text() for path in folder.iterdir()}
        write_pair(folder, "newest")
        assert read_pair(folder) == ["newest", "newest"]
    assert not killed_at(len(expected), lambda: write_pair(folder, "again"))
    assert read_pair(folder) == ["again", "again"]


@pytest.mark.parametrize("refused", [0, 1])
def test_an_error_leaves_both_old_files(tmp_path, monkeypatch, refused):
    """An error of the body, or of the first rename of a new file, after the old one has moved aside."""
    write_pair(tmp_path, "old")
    rename, names = os.replace, []

    def replace(old, new):
        names.append(new)
        if str(old).endswith(".tmp"):
            raise OSError(5, "Input/output error")
        rename(old, new)

    monkeypatch.setattr(os, "replace", replace)
    with pytest.raises(InputError if refused else RuntimeError, match="cannot be written" if refused else "mine"):
        with replacing_together([tmp_path / "v.en", tmp_path / "v.de"]) as temporaries:
            temporaries[0].write_text("new")
            if not refused:
                raise RuntimeError("mine")
    assert read_pair(tmp_path) == ["old", "old"] and len(list(tmp_path.iterdir())) == 2
    assert bool(names) == bool(refused)


def test_a_folder_that_cannot_be_synchronised(tmp_path, monkeypatch):
    """The file is already in place, so this is not an error."""

    def fails_for_folders(path):
        if Path(path).is_dir():
            raise OSError(22, "Invalid argument")

    monkeypatch.setattr(files, "sync", fails_for_folders)
    with replacing(tmp_path / "a.bin") as temporary:
        temporary.write_text("new")
    assert (tmp_path / "a.bin").read_text() == "new"


def test_an_out_that_is_read_or_no_utf_8(tmp_path):
    (tmp_path / "a.pt").write_text("mine")
    (tmp_path / "b.pt").symlink_to(tmp_path / "a.pt")
    with pytest.raises(InputError, match="OUT .*b.pt: is also an input file; choose another name"):
        check_out(str(tmp_path / "b.pt"), True, ".pt", str(tmp_path / "a.pt"))
    with pytest.raises(InputError, match=r"OUT .*caf.udce9.safetensors: the name must be UTF-8"):
        check_out(f"{tmp_path}/caf\udce9.safetensors", True, ".safetensors")


def test_a_full_disk_is_one_line(tmp_path):
    with (
        pytest.raises(InputError, match="OUT .*a.bin: cannot be written .No space left on device"),
        replacing(tmp_path / "a.bin"),
    ):
        raise OSError(28, "No space left on device")


def test_a_full_disk_leaves_the_old_folder(tmp_path):
    (tmp_path / "a").mkdir()
    with (
        pytest.raises(InputError, match="--out .*a: cannot be written .No space left on device"),
        replacing_folder(tmp_path / "a", "--out {path}: cannot be written ({why})") as temporary,
    ):
        temporary.mkdir()
        raise OSError(28, "No space left on device")
    assert list(tmp_path.iterdir()) == [tmp_path / "a"]


def test_the_old_folder_returns_if_the_new_one_is_missing(tmp_path):
    """The old folder moves aside first. Here the new folder does not exist."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "mine").write_text("mine")
    with pytest.raises(InputError, match="OUT .*a: cannot be written"), replacing_folder(tmp_path / "a"):
        pass
    assert (tmp_path / "a" / "mine").read_text() == "mine" and list(tmp_path.iterdir()) == [tmp_path / "a"]


@contextmanager
def files_of_at_most(count):
    """A limit on the size of files stops a write midway, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (count, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize(
    "words",
    [
        "export CHECKPOINT OUT.safetensors",
        "materialize CHECKPOINT OUT.pt",
        "average CHECKPOINT CHECKPOINT OUT.pt",
        "dump-embeddings CHECKPOINT OUT",
    ],
)
def test_a_full_disk_is_one_line_in_every_command(words, of_l_and_t, tmp_path):
    command = words.replace("CHECKPOINT", str(of_l_and_t.path)).replace("OUT", str(tmp_path / "out")).split()
    with files_of_at_most(1000), pytest.raises(SystemExit) as leaving:
        cli.main(command)
    message = str(leaving.value)
    assert message.startswith(f"fairseq-reservoir: error: OUT {tmp_path}/out.") and "\n" not in message
    assert "cannot be written (" in message and "File too large" in message and not list(tmp_path.iterdir())


@pytest.mark.parametrize("umask, mode", [(0o022, 0o644), (0o002, 0o664), (0o077, 0o600)])
def test_the_umask_decides_who_may_read(umask, mode, tmp_path):
    before = os.umask(umask)
    try:
        packed_file.write(tmp_path / "a.safetensors", {}, {"w": torch.zeros(3)})
        with replacing(tmp_path / "a.txt") as temporary:
            temporary.write_text("new")
    finally:
        os.umask(before)
    assert [stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()] == [mode, mode]


def test_a_file_system_that_refuses_to_change_modes(tmp_path, monkeypatch):
    def refuse(*args):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "chmod", refuse)
    with replacing(tmp_path / "file") as part:
        part.write_text("new")
    assert (tmp_path / "file").read_text() == "new"


def test_a_link_planted_at_the_temporary_name_is_not_followed(tmp_path):
    precious, out = tmp_path / "precious", tmp_path / "a.bin"
    precious.write_text("precious")
    temporary_name(out).symlink_to(precious)
    with replacing(out) as temporary:
        temporary.write_text("new")
    assert precious.read_text() == "precious" and out.read_text() == "new" and not out.is_symlink()


@pytest.mark.parametrize(
    "name, force, message",
    [
        ("a.pt", True, "the name must end in .bin"),
        ("none/a.bin", True, "is not a writable folder"),
        ("old.bin", False, "exists; --force replaces it"),
        ("folder.bin", True, "is a folder"),
    ],
)
def test_refusals(tmp_path, name, force, message):
    (tmp_path / "old.bin").write_text("old")
    (tmp_path / "folder.bin").mkdir()
    with pytest.raises(InputError, match=message):
        check_out(tmp_path / name, force, ".bin")
    check_out(tmp_path / "old.bin", True, ".bin")
    check_out(tmp_path / "new.bin", False, ".bin")


KILLED_WHILE_SAVING = """
import os, signal, sys
sys.modules["fairseq"] = None
import torch
from fairseq_reservoir import files
from fairseq_reservoir.checkpoint import packed_file
def die(path):
    assert os.path.getsize(path) > 1000
    os.kill(os.getpid(), signal.SIGKILL)
files.sync = die
packed_file.write({path!r}, {{"new": True}}, {{"w": torch.ones(1000)}})
"""


def test_a_process_killed_while_saving_leaves_the_old_file(tmp_path):
    out = tmp_path / "model.safetensors"
    packed_file.write(out, {"old": True}, {"w": torch.zeros(1000)})
    done = run_function(be_code, KILLED_WHILE_SAVING.format(path=str(out)))
    assert done.returncode == -9, done.stderr
    body, tensors = packed_file.read(out)
    assert body["old"] and tensors["w"].equal(torch.zeros(1000))
    packed_file.write(out, {"new": True}, {"w": torch.ones(1000)})
    assert packed_file.read(out)[0]["new"]


def test_only_regular_files_are_read_and_only_up_to_a_size(tmp_path):
    (tmp_path / "a").write_bytes(b"12\xff\r\n")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    os.mkfifo(tmp_path / "fifo")
    assert (
        files.read_regular(tmp_path / "link", 5) == b"12\xff\r\n"
        and files.read_text(tmp_path / "a", 5) == "12\ufffd\r\n"
    )
    for name, most, told in (("a", 4, "is larger than 4 bytes"), ("fifo", 4, "is a FIFO"), (".", 4, "is a folder")):
        with pytest.raises(OSError, match=told):
            files.read_regular(tmp_path / name, most)
    with pytest.raises(OSError, match="is a device"):
        files.read_regular("/dev/null", 4)
    assert files.regular(tmp_path / "link") and not files.regular(tmp_path / "fifo") and not files.regular("x" * 5000)


def test_a_file_with_a_hard_link_is_not_written_in_place(tmp_path):
    (tmp_path / "a").write_text("precious")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    (tmp_path / "to nowhere").symlink_to(tmp_path / "b")
    os.mkfifo(tmp_path / "fifo")
    for name, told in (("link", "is a link"), ("to nowhere", "is a link"), ("fifo", "is a FIFO"), (".", "is a folder")):
        with pytest.raises(OSError, match=told):
            files.open_own_file(tmp_path / name, os.O_WRONLY)
    (tmp_path / "hard").hardlink_to(tmp_path / "a")
    with pytest.raises(OSError, match="hard link"):
        files.open_own_file(tmp_path / "hard", os.O_WRONLY)
    os.close(files.open_own_file(tmp_path / "new", os.O_WRONLY))
    assert (tmp_path / "new").read_text() == "" and (tmp_path / "a").read_text() == "precious"


def test_a_link_that_comes_after_the_check_is_not_followed(tmp_path, monkeypatch):
    (tmp_path / "a").write_text("precious")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    os.mkfifo(tmp_path / "fifo")
    monkeypatch.setattr(files, "fault_of_own_file", lambda path: "")
    for name in ("link", "fifo"):
        with pytest.raises(OSError):
            files.open_own_file(tmp_path / name, os.O_WRONLY | os.O_TRUNC)
    assert (tmp_path / "a").read_text() == "precious"


def test_files_that_cannot_be_read(tmp_path, monkeypatch):
    """One line with the reason. Root may read everything, so the error is simulated."""
    (tmp_path / "a.pt").touch()
    (tmp_path / "loop").symlink_to("loop")
    os.mkfifo(tmp_path / "pipe")
    files.check_file("MODEL", tmp_path / "a.pt")
    files.check_file("--input", tmp_path / "pipe", or_pipe=True)
    for path, why in (
        (tmp_path / "no.pt", "no such file"),
        ("", "no such file"),
        ("a\0b", "no such file"),
        (tmp_path, "is a folder; name a file in it"),
        (tmp_path / "pipe", "not an ordinary file"),
        (tmp_path / ("x" * 300), "cannot be read (File name too long)"),
        (tmp_path / "a.pt" / "b", "cannot be read (Not a directory)"),
        (tmp_path / "loop", "cannot be read (Too many levels of symbolic links)"),
    ):
        with pytest.raises(InputError) as refusal:
            files.check_file("MODEL", path)
        assert str(refusal.value).startswith("MODEL ") and str(refusal.value).endswith(f": {why}")

    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(InputError, match=r"a\.pt: cannot be read \(Permission denied\)$"):
        files.check_file("MODEL", tmp_path / "a.pt")


def test_names_that_are_too_long(tmp_path):
    """The temporary name, which contains the process number, may be too long, too."""
    for length in (249, 300, 5000):
        with pytest.raises(InputError, match=r"cannot be written \(File name too long\)$"):
            check_out(str(tmp_path / ("x" * length + ".pt")), True, ".pt")
    check_out(str(tmp_path / ("x" * 200 + ".pt")), True, ".pt")
