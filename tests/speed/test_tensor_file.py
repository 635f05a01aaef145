"""The file of kept tensors: damaged, full, killed in the middle of writing, written by several processes at once."""

import logging
import multiprocessing
import os
import resource
import signal
import time

import pytest
import torch

from fairseq_reservoir.errors import InputError
from fairseq_reservoir.speed import kept_tensor
from fairseq_reservoir.speed.tensor_file import START, TensorFile

ROOM = 2**20
ABOUT = {"dictionary": "d"}


def key(number):
    return number.to_bytes(32, "big")


def tensor(number):
    return torch.full((number % 5 + 1, 2, 3), float(number)).cumsum(0)


def opened(path, prefix="p", limit=ROOM, about=ABOUT, **flags):
    file = TensorFile(str(path), about, limit, **flags)
    file.begin(prefix)
    return file


def put(file, *numbers):
    for number in numbers:
        file.put(key(number), *kept_tensor.pack(tensor(number)))


def got(file, number):
    """Whether the tensor of a number is there; if so, it is the right one."""
    found = file.get(key(number))
    if found is None:
        return False
    assert kept_tensor.unpack(*found).equal(tensor(number))
    return True


def test_what_is_put_is_there_for_everybody(tmp_path):
    one, other = opened(tmp_path / "f"), opened(tmp_path / "f")
    put(one, 1)
    put(other, 2, 1)
    assert all(got(file, number) for file in (one, other, opened(tmp_path / "f")) for number in (1, 2))
    assert not got(one, 3)
    # Head, and two records: 68 bytes and 2 x 2 x 3 or 3 x 2 x 3 floats, the second from the next multiple of 64 on.
    assert (tmp_path / "f").stat().st_size == START + 128 + 68 + 3 * 2 * 3 * 4


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_tensor_comes_back_as_it_lay_in_memory(swapped, dtype):
    x = torch.randn(3, 4, 5).to(dtype)
    x = x.transpose(0, 1) if swapped else x
    back = kept_tensor.unpack(*kept_tensor.pack(x))
    assert back.equal(x) and back.stride() == x.stride() and back.dtype == dtype
    back.add_(1)  # memory of its own
    assert not back.equal(x)


def test_cut_off_anywhere(tmp_path):
    """As a process leaves the file that is killed at any byte: what is whole is there, the rest is not, and can be put again."""
    put(opened(tmp_path / "whole"), 1, 2)
    data = (tmp_path / "whole").read_bytes()
    for length in (*range(0, 120, 7), *range(START - 2, len(data), 5)):
        (tmp_path / "cut").write_bytes(data[:length])
        file = opened(tmp_path / "cut")
        there = [number for number in (1, 2) if got(file, number)]
        assert there == ([1] if length >= START + 116 else [])
        put(file, 1, 2)
        assert got(opened(tmp_path / "cut"), 1) and got(opened(tmp_path / "cut"), 2)


def test_a_changed_byte_anywhere(tmp_path):
    put(opened(tmp_path / "whole"), 1, 2)
    data = bytearray((tmp_path / "whole").read_bytes())
    for place in range(START, len(data), 3):
        data[place] ^= 16
        (tmp_path / "changed").write_bytes(data)
        data[place] ^= 16
        file = opened(tmp_path / "changed")
        assert [got(file, number) for number in (1, 2)] != [True, True] or START + 116 <= place < START + 128


@pytest.mark.parametrize("change", ["emptied", "replaced", "overwritten"])
def test_changed_while_it_is_open(tmp_path, change):
    path = tmp_path / "f"
    file = opened(path)
    put(file, 1, 2)
    if change == "emptied":
        os.truncate(path, 0)
    elif change == "replaced":
        path.unlink()
        put(opened(path, prefix="q"), 3)
    else:
        path.write_bytes(os.urandom(path.stat().st_size))
    for number in (1, 2, 3):
        assert got(file, number) == (change == "replaced" and number < 3)
    put(file, 4)  # no error


def test_a_full_disk(tmp_path, caplog):
    file = opened(tmp_path / "f")
    put(file, 1)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (START + 200, before[1]))
    try:
        put(file, 4, 5)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    (said,) = caplog.messages
    assert said == (
        f"--freeze-cache {tmp_path / 'f'}: it cannot be written (File too large); goes on with 1 batches, others are worked out each time"
    )
    assert got(file, 1) and not got(file, 4)
    assert (tmp_path / "f").stat().st_size <= START + 128


def test_the_limit(tmp_path, caplog):
    file = opened(tmp_path / "f", limit=START + 250)
    put(file, 1, 2, 3)
    assert [got(file, number) for number in (1, 2, 3)] == [True, False, False]
    assert len(caplog.messages) == 1 and "--freeze-cache-mib 0 is reached" in caplog.text


def test_files_of_something_else(tmp_path, caplog):
    path = tmp_path / "f"
    put(opened(path), 1)
    before = path.read_bytes()
    for flags, what in (
        ({"about": {"dictionary": "e"}}, "dictionary (d, here e)"),
        ({"prefix": "q"}, "frozen prefix (p, here q)"),
        ({"renews": True}, "kind of run (without a freeze schedule, here with a freeze schedule)"),
    ):
        with pytest.raises(InputError) as refused:
            opened(path, **flags)
        assert str(refused.value) == (
            f"--freeze-cache {path}: was made with another {what}; delete it or name another file"
        )
    assert path.read_bytes() == before
    for text in (b"x", b"my diary" * 1000):
        path.write_bytes(text)
        with pytest.raises(InputError, match="is not a file of kept batches, and is left as it is"):
            opened(path)
        assert path.read_bytes() == text
    with pytest.raises(InputError, match="cannot be opened and written \\(Is a directory\\)"):
        opened(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="is no ordinary file"):
        opened(tmp_path / "pipe")


def test_with_a_schedule_another_prefix_begins_anew(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    one, other = (opened(tmp_path / "f", renews=True) for _ in range(2))
    put(one, 1, 2)
    other.begin("q")
    assert "begins anew, since the frozen prefix is another" in caplog.text
    put(one, 3)  # is still at the prefix before: writes nothing any more
    put(other, 4)
    assert [got(other, number) for number in (1, 2, 3, 4)] == [False, False, False, True]
    one.begin("q")
    assert [got(one, number) for number in (1, 2, 3, 4)] == [False, False, False, True]


def write(path, ready, numbers):
    file = opened(path, limit=2**30)
    ready.wait()
    for number in numbers:
        put(file, number)
        assert got(file, number)


def process(function, *arguments):
    """A process that has everything imported already, started."""
    started = multiprocessing.get_context("fork").Process(target=function, args=arguments)
    started.start()
    return started


def test_two_processes_and_one_that_is_killed_while_it_writes(tmp_path):
    path = str(tmp_path / "f")
    ready = multiprocessing.get_context("fork").Barrier(4)
    processes = [process(write, path, ready, range(*ends)) for ends in ((0, 400), (200, 600), (1000, 10**8))]
    ready.wait()
    time.sleep(0.3)
    processes[2].kill()
    for one in processes:
        one.join()
    assert [one.exitcode for one in processes] == [0, 0, -signal.SIGKILL]
    file = opened(path)
    assert all(got(file, number) for number in range(600))
    written = sum(got(file, number) for number in range(1000, 1000 + len(file.index)))
    assert len(file.index) == 600 + written  # nothing twice, nothing else
    put(file, 700)
    assert got(opened(path), 700)


def killed_before_the_header_is_whole(path):
    """Ends with the lock, the numbers of record 4 written, and 30 bytes of its header."""
    whole, file = TensorFile._write, opened(path)

    def stop(data, place):
        if len(data) == 68:
            whole(file, bytes(data)[:30], place)
            os.kill(os.getpid(), signal.SIGKILL)
        whole(file, data, place)

    file._write = stop
    put(file, 4)


def test_a_process_that_was_killed_in_the_middle_of_a_record(tmp_path):
    path = str(tmp_path / "f")
    put(opened(path), 1)
    killed = process(killed_before_the_header_is_whole, path)
    killed.join()
    assert killed.exitcode == -signal.SIGKILL
    assert os.path.getsize(path) == START + 128 + 68 + 5 * 2 * 3 * 4
    file = opened(path)
    assert got(file, 1) and not got(file, 4)
    put(file, 2, 3, 4)
    assert all(got(opened(path), number) for number in (1, 2, 3, 4))
