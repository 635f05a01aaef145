"""benchmarks/epoch_time.py: its arguments, and whole epochs of a tiny model on a corpus of numbers in words."""

import contextlib
import json
import subprocess
import sys
from pathlib import Path
from unittest.mock import patch

import pytest
import torch

from benchmarks import epoch_time
from fairseq_reservoir.fairseq_repairs import allocator
from fairseq_reservoir.fairseq_repairs.repair import WITHOUT

SCRIPT = Path(epoch_time.__file__)
TINY = (
    "--encoder-embed-dim 128 --encoder-ffn-embed-dim 12 --encoder-layers 1 --decoder-layers 1"
    " --encoder-attention-heads 2 --decoder-attention-heads 2"
)


@pytest.mark.parametrize("arguments, message", [
    (["--arm", "A: --arch transformer"], "two or more"),
    (["--epochs", "0"], "--epochs 0: at least 1"),
    (["--updates", "0"], "--updates 0: at least 1"),
    (["--busy", "-1"], "--busy -1: at least 0"),
    (["--busy", "1,-2"], "--busy -2: at least 0"),
    (["--busy", "x"], "--busy: invalid"),
    (["--nice", "20"], "--nice 20: 0 to 19"),
    (["--busy", "0,1", "--promise", "with the plugin"], "--promise: only with one number for --busy"),
    (["--raw", "a", "--data", "b"], "--raw: give it or --data, not both"),
    (["--data", "nowhere"], "nowhere: no such folder; examples/multi30k.sh makes it, or give --raw FOLDER"),
    (["--corpus", "wmt"], "choose from"),
    (["--promise", "X"], "--promise X: choose from with the plugin, with the plugin, last batch as in stock"),
])  # fmt: skip
def test_wrong_arguments_are_named(arguments, message, capsys):
    with pytest.raises(SystemExit, match="2"):
        epoch_time.read_arguments(arguments)
    assert message in capsys.readouterr().err


def test_variables_stand_before_the_flags(tmp_path):
    given = epoch_time.read_arguments(
        ["--data", str(tmp_path), "--threads", "2", "--updates", "3", "--corpus", "quickstart"]
    )
    arm = epoch_time.Arm("A", "A=1 OMP_NUM_THREADS=1 --arch transformer --user-dir x=y", given)
    assert (arm.environment["A"], arm.environment["OMP_NUM_THREADS"]) == ("1", "1") and "--max-tokens 2048" in " ".join(
        arm.command
    )
    assert arm.command[1] == str(tmp_path) and arm.command[-4:] == ["--arch", "transformer", "--user-dir", "x=y"]
    assert epoch_time.Arm("B", "--arch transformer", given).environment["OMP_NUM_THREADS"] == "2"


def test_each_arm_runs_beside_each_number_of_processes(tmp_path, monkeypatch):
    """Two arms, alone and with one busy process, in two rounds, the second in reverse. A run takes 2 s alone, else 3 s."""
    seen = []

    @contextlib.contextmanager
    def busy_processes(count, nice, own_session):
        seen.append((count, nice))
        assert own_session is True
        yield

    def run(command, environment):
        name = environment.get("OMP_WAIT_POLICY", "spinning")
        seen[-1] += (name,)
        return {"seconds": 2.0 + seen[-1][0], "start": 1.0, "cpu_seconds": 1.0, "faults": 1, "peak_mib": 1.0}

    for name, stand_in in (("busy_processes", busy_processes), ("run", run), ("weights_of", lambda path: "same")):
        monkeypatch.setattr(epoch_time, name, stand_in)
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    arms = ["--arm", "spinning: --arch a", "--arm", "passive: OMP_WAIT_POLICY=passive --arch a"]
    flags = [
        "--data",
        tmp_path,
        "--busy",
        "0,1",
        "--nice",
        "10",
        "--own-session",
        "--pairs",
        "2",
        "--output",
        tmp_path / "out",
        *arms,
    ]
    result = epoch_time.main([*map(str, flags)])
    forth = [(0, 10, "spinning"), (0, 10, "passive"), (1, 10, "spinning"), (1, 10, "passive")]
    assert seen == forth + forth[::-1]
    assert [(arm["arm"], arm["seconds"]) for arm in result["arms"]] == [
        ("spinning, beside 0", 2.0), ("passive, beside 0", 2.0), ("spinning, beside 1", 3.0), ("passive, beside 1", 3.0),
    ]  # fmt: skip
    assert "0 or 1 busy processes with priority 10, in new sessions" in (tmp_path / "out.md").read_text()


def test_other_processes_have_their_priority_and_end():
    with patch.object(epoch_time.subprocess, "Popen") as started, epoch_time.busy_processes(2, 10, own_session=True):
        assert [call.args[0][2] for call in started.call_args_list] == ["import os; os.nice(10)\nwhile True: pass"] * 2
        assert [call.kwargs["start_new_session"] for call in started.call_args_list] == [True, True]
        started.return_value.kill.assert_not_called()
    assert started.return_value.kill.call_count == 2


def test_a_failed_run_is_reported(tmp_path):
    with pytest.raises(SystemExit, match="epoch_time: .*: status 3: no such flag"):
        epoch_time.run([sys.executable, "-c", "print('begin'); print('no such flag'); exit(3)"], None)


def test_the_hash_is_of_the_tensors_that_fairseq_has_too(tmp_path):
    def hash_of(**tensors):
        torch.save({"model": tensors}, tmp_path / "a.pt")
        return epoch_time.weights_of(tmp_path / "a.pt")

    a, b = torch.tensor([1.0, 2.0]), torch.tensor(3.0)
    assert hash_of(a=a, b=b) == hash_of(b=b, reservoir_version=b, a=a) != hash_of(a=a, b=-b) != hash_of(a=a)


@pytest.mark.slow
def test_whole_epochs_of_a_tiny_model(tmp_path):
    subprocess.run([sys.executable, SCRIPT.parent.parent / "examples" / "mini_corpus.py", tmp_path / "raw"], check=True)
    plugin = f"--user-dir fairseq_reservoir --arch transformer {TINY}"
    arms = [f"plain: {WITHOUT}=kept-memory {plugin}", f"kept: {plugin}", f"another: {plugin} --lr 2e-3"]
    command = [
        sys.executable,
        SCRIPT,
        "--raw",
        tmp_path / "raw",
        "--pairs",
        "1",
        "--epochs",
        "2",
        "--threads",
        "1",
        "--busy",
        "1",
    ]
    command += [word for arm in arms for word in ("--arm", arm)] + ["--output", tmp_path / "times"]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr

    result = json.loads((tmp_path / "times.json").read_text())
    plain, kept, another = result["arms"]
    assert [arm["same_bits"] for arm in result["arms"]] == ["yes", "yes", "no"]
    assert not allocator.is_glibc() or kept["faults"] < plain["faults"]
    assert all(arm["seconds"] > 0 and arm["start"] > 0 and arm["peak_mib"] > 50 for arm in result["arms"])
    assert (
        kept["ratios"][0] == pytest.approx(kept["seconds"] / plain["seconds"], rel=1)
        and result["surroundings"]["length"] == "2 epochs"
    )
    assert (tmp_path / "times.md").read_text() == ended.stdout and ended.stdout.count("\n| ") == 3
