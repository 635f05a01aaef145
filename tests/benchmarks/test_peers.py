"""benchmarks/peers.py: its arguments, turns of the workers, and steps of tiny models on the same batches."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks import pairs, peer_environments, peers

SCRIPT = Path(peers.__file__)
ENVIRONMENTS = pairs.ROOT / "runs" / "peers"


@pytest.fixture(scope="module")
def steps():
    """The module that all workers share. It is in their folder, not in a package."""
    sys.path.insert(0, str(peers.WORKERS))
    try:
        import steps
    finally:
        sys.path.remove(str(peers.WORKERS))
    return steps


@pytest.mark.parametrize("arguments, message", [
    (["--pairs", "0"], "--pairs 0: at least 1"),
    (["--seconds", "0"], "--seconds 0.0: at least 1"),
    (["--warm-up", "1"], "--warm-up 1: at least 2, because the first steps differ from the others"),
    (["--device", "cuda"], "--device cuda: this benchmark only times the CPU"),
    (["--raw", "a", "--data", "b"], "--raw: give it or --data, not both"),
    (["--data", "nowhere"], "nowhere: no such folder; examples/multi30k.sh makes it, or give --raw FOLDER"),
    (["--only", "marian"], "choose from"),
])  # fmt: skip
def test_wrong_arguments_are_named(arguments, message, capsys):
    with pytest.raises(SystemExit, match="2"):
        peers.read_arguments(arguments)
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("features, refused", [("avx2, avx512f", True), ("amx_bf16, avx2", False)])
def test_bf16_is_for_processors_that_have_it(features, refused, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(pairs, "processor_features", lambda: features)
    arguments = ["--precision", "bf16", "--data", str(tmp_path)]
    if not refused:
        assert "--bf16" in peers.flags_of(peers.read_arguments(arguments), peers.STOCK)
        return
    with pytest.raises(SystemExit, match="2"):
        peers.read_arguments(arguments)
    assert "--precision bf16: this processor has no bf16 instructions; choose fp32" in capsys.readouterr().err


def test_a_dry_run_only_prints(tmp_path, capsys):
    peers.main(["--dry-run", "--only", "joeynmt", "--only", peers.FAST, "--environments", str(tmp_path / "none")])
    printed = capsys.readouterr().out.splitlines()
    assert [line.split(": ")[0] for line in printed] == [f"{tmp_path}/none/joeynmt", peers.STOCK, peers.FAST, "joeynmt"]
    assert "would be made: joeynmt==" in printed[0] and printed[2].endswith(" --fast")
    assert printed[1].split(" --encoder-embed-dim")[1] == printed[2].split(" --encoder-embed-dim")[1].removesuffix(
        " --fast"
    )
    assert not (tmp_path / "none").exists()


def test_batches_are_padded_and_shifted_as_fairseq_does(steps, tmp_path, monkeypatch):
    job = object.__new__(steps.Job)
    job.batches = [[[[7, 8, 2], [9, 2]], [[7, 2], [4, 5, 6, 2]]]]
    ((source, target),) = job.rectangles()
    assert source.tolist() == [[7, 8, 2], [7, 2, 1]] and target.tolist() == [[9, 2, 1, 1], [4, 5, 6, 2]]
    # The end of sentence (2) comes first, the last token is dropped, and padding (1) is where the target has it.
    assert job.after_start(target).tolist() == [[2, 9, 1, 1], [2, 4, 5, 6]]


class Turn:
    """Fake worker: records its turns, and turn n takes n seconds. It stops at ``last``."""

    def __init__(self, name, turns, last=99):
        self.name, self.turns, self.last, self.count = name, turns, last, 0

    def step(self):
        self.count += 1
        self.turns.append(self.name)
        if self.count > self.last:
            raise peers.Stopped("status 1: no memory")
        return float(self.count)


def test_turns():
    turns = []
    times, stopped = peers.take_turns([Turn(name, turns) for name in "ABC"], 4)
    assert "".join(turns) == "ABC" + "CBA" + "BCA" + "ACB" and not stopped
    assert times == dict.fromkeys("ABC", [1.0, 2.0, 3.0, 4.0])
    # Round n takes 3 n seconds, so 9 seconds have passed after the second.
    assert peers.take_turns([Turn(name, []) for name in "ABC"], 4, 9)[0]["A"] == [1.0, 2.0]
    times, stopped = peers.take_turns([Turn("A", []), Turn("B", [], last=1)], 3)
    assert times["A"] == [1.0, 2.0, 3.0] and stopped == {"B": "status 1: no memory"}


def test_a_stopped_worker_gives_a_reason(tmp_path):
    program = (
        "import os; input(); os.write(int(os.environ['BENCHMARK_REPORTS']), b'{\"seconds\": 2}'); exit('no such word')"
    )
    worker = peers.Worker("A", "", [sys.executable, "-c", program], dict(os.environ), tmp_path / "A.log")
    assert worker.step() == 2
    with pytest.raises(peers.Stopped, match="^status 1: no such word$"):
        worker.step()
    worker.end()


def test_tokens_and_padding(tmp_path):
    # The first batch is for warm-up. The second has targets of 2 and 4 tokens, the first padded by 2: 2 of 8.
    batches = [[[[5, 2], [5, 2]]], [[[7, 8, 2], [9, 2]], [[7, 2], [4, 5, 6, 2]]]]
    (tmp_path / "job.json").write_text(json.dumps({"batches": batches}))
    tokens, words = peers.tokens_of(tmp_path / "job.json", 1)
    assert tokens == [6] and words.startswith("2 sentences and 6 target tokens") and ", 25 % of" in words


@pytest.mark.slow
def test_a_toolkit_that_cannot_be_installed_is_reported(tmp_path, monkeypatch):
    peer = peer_environments.Peer("none.py", ("no-such-toolkit==1",))
    monkeypatch.setattr(peer_environments, "PEERS", {"none": peer})
    for name, value in (("PIP_NO_INDEX", "1"), ("PIP_FIND_LINKS", ""), ("PIP_CONFIG_FILE", os.devnull)):
        monkeypatch.setenv(name, value)
    with pytest.raises(peer_environments.NotInstalled, match="No matching distribution found for no-such-toolkit==1"):
        peer_environments.make("none", tmp_path)
    assert peer_environments.made("none", tmp_path) is None
    inside = [peer_environments.python_of(tmp_path / "none"), "-c", "import torch; print(torch.__version__)"]
    ended = subprocess.run(inside, capture_output=True, text=True, env={"PATH": os.environ["PATH"]})
    assert ended.stdout.strip() == torch.__version__, ended.stderr


def run_tiny(data, folder, *names, environments=ENVIRONMENTS):
    """Rows of a run of stock fairseq and the arms of ``names``."""
    command = [sys.executable, SCRIPT, "--tiny", "--data", data, "--offline", "--environments", environments]
    command += [word for name in names for word in ("--only", name)]
    command += [*"--pairs 2 --warm-up 2 --max-tokens 48".split(), "--output", folder / "peers"]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert (folder / "peers.md").read_text() == ended.stdout
    return json.loads((folder / "peers.json").read_text()), ended.stdout


def check(arm, stock):
    assert "absent" not in arm, arm["absent"]
    # Parameter counts are nearly equal. They differ only in biases and norms.
    assert arm["parameters"] == pytest.approx(stock["parameters"], rel=0.05) and arm["moved"] > 0.8 * arm["parameters"]
    assert len(arm["ratios"]) == 2 and arm["tokens_per_second"] > 0


@pytest.mark.slow
def test_stock_and_ours_take_the_same_batches(toy_data, tmp_path):
    result, printed = run_tiny(toy_data, tmp_path, peers.FAST)
    stock, fast = result["arms"]
    check(fast, stock)
    assert stock["parameters"] == fast["parameters"] and result["surroundings"]["threads"] == 1
    assert printed.count("\n| ") == 2 and "% of target positions padded" in printed


@pytest.mark.slow
def test_a_toolkit_that_is_not_there_is_a_row(toy_data, tmp_path):
    result, printed = run_tiny(toy_data, tmp_path, peers.OURS, "eole", environments=tmp_path)
    stock, ours, eole = result["arms"]
    check(ours, stock)
    assert stock["parameters"] == ours["parameters"] and stock["moved"] == ours["moved"]
    assert eole["absent"] == "not installed, because of --offline" and f"| eole | {eole['absent']} |" in printed


def made(name):
    return peer_environments.made(name, ENVIRONMENTS)


@pytest.mark.slow
@pytest.mark.parametrize("name", peer_environments.PEERS)
def test_peers_take_the_same_batches(name, toy_data, tmp_path):
    if not made(name):
        pytest.skip(f"no environment of {name} in runs/peers: benchmarks/peers.py makes it from the package index")
    result, _ = run_tiny(toy_data, tmp_path, name)
    check(result["arms"][1], result["arms"][0])
    assert result["arms"][1]["version"].startswith(name) and result["arms"][1]["flags"].startswith("Differences")


@pytest.mark.slow
def test_too_few_batches_are_reported(toy_data, tmp_path):
    command = [sys.executable, SCRIPT, "--tiny", "--data", toy_data, "--only", peers.OURS, "--output", tmp_path / "a"]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 1
    assert ended.stderr.strip() == f"peers: --data {toy_data}: fewer than 43 batches of --max-tokens 4096 in an epoch"
