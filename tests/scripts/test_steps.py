"""Steps: executed once, repeated with all later steps after a change, and never by two runs at a time."""

import errno
import os
import subprocess
import sys

import pytest
from prepare import console
from prepare.steps import Steps


@pytest.fixture
def run(tmp_path):
    """Return a function that runs two steps with these settings and returns the executed ones. The step ``failing`` is interrupted."""

    def two_steps(first, second, failing=None):
        made = []

        def build(name):
            def write(folder):
                (folder / "text").write_text(f"{first} {second}")
                if name == failing:
                    raise KeyboardInterrupt
                made.append(name)

            return write

        steps = Steps(tmp_path / "work")
        try:
            steps.make(tmp_path / "work" / "a", first, build("a"))
            steps.make(tmp_path / "b", [second], build("b"))
        except KeyboardInterrupt:
            made.append("interrupted")
        finally:
            steps.lock.close()
        return made

    return two_steps


def test_a_changed_step_is_repeated_with_all_later_ones(run, tmp_path):
    assert run(1, 1) == ["a", "b"]
    assert run(1, 1) == []
    assert run(1, 2) == ["b"]
    assert run(2, 2) == ["a", "b"]
    assert (tmp_path / "b" / "text").read_text() == "2 2"


def test_a_step_interrupted_leaves_the_old_result_or_none(run, tmp_path):
    assert run(1, 1, failing="b") == ["a", "interrupted"]
    assert not (tmp_path / "b").exists()
    assert run(1, 1) == ["b"]
    assert run(1, 2, failing="b") == ["interrupted"]
    assert (tmp_path / "b" / "text").read_text() == "1 1"
    assert run(1, 2) == ["b"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b", "work"]


def test_folders_of_a_user_are_not_touched(run, tmp_path):
    """A user may rename a folder, as the script advises, and run it again."""
    run(1, 1)
    (tmp_path / "b").rename(tmp_path / "b.old")
    (tmp_path / "b.part").mkdir()
    (tmp_path / "b.part" / "thesis").write_text("precious")
    assert run(1, 1) == ["b"] and run(1, 2) == ["b"]
    assert (tmp_path / "b.old" / "text").read_text() == "1 1"
    assert (tmp_path / "b.part" / "thesis").read_text() == "precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b", "b.old", "b.part", "work"]


def test_a_second_run_waits_for_processes_of_the_first(run, tmp_path, capsys):
    steps = Steps(tmp_path / "work")
    child = [sys.executable, "-c", "import time; print(flush=True); time.sleep(0.3); open('done', 'w')"]
    working = subprocess.Popen(child, cwd=tmp_path, stdout=subprocess.PIPE, pass_fds=[steps.lock_number])
    working.stdout.readline()
    steps.lock.close()  # as at the end of the first run
    run(1, 1)
    assert (tmp_path / "done").exists()
    assert "waiting for another run that works in" in capsys.readouterr().out
    working.communicate()


def test_a_full_disk_is_one_line_and_nothing_half_made_stays(run, tmp_path, capsys):
    run(1, 1)
    steps = Steps(tmp_path / "work")

    def full(folder):
        (folder / "text").write_text("half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(SystemExit) as leaving:
        console.run("prepare_it", lambda: steps.make(tmp_path / "work" / "a", 2, full))
    steps.lock.close()
    expected = f"prepare_it: {tmp_path}/work/a cannot be made (No space left on device); run again to resume\n"
    assert leaving.value.code == 2 and capsys.readouterr().err == expected
    assert not (tmp_path / "work" / ".a.part").exists() and (tmp_path / "work" / "a" / "text").read_text() == "1 1"


def test_other_errors_of_the_system_are_one_line_too(tmp_path, capsys):
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit):
        console.run("prepare_it", lambda: Steps(tmp_path / "file"))
    assert capsys.readouterr().err == f"prepare_it: {tmp_path}/file: File exists; run again to resume\n"
