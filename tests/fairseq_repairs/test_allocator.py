"""Repair of glibc's allocator: fewer page faults, bit-identical training, the memory limit, and the switch to disable it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fairseq_reservoir.errors import InputError
from fairseq_reservoir.fairseq_repairs import allocator
from fairseq_reservoir.fairseq_repairs.repair import WITHOUT
from tests.support.commands import start_training

ROOT = Path(allocator.__file__).parents[2]
glibc_only = pytest.mark.skipif(not allocator.is_glibc(), reason="only glibc has this allocator")
FRESH = dict.fromkeys((WITHOUT, allocator.KEPT_MIB, "GLIBC_TUNABLES", "LD_PRELOAD", *allocator._SETTINGS))
# In a fork for each set of variables: allocates and frees 64 MiB (16,384 pages) four times, and then measures the resident memory.
# With "report" in sys.argv the package does not import fairseq.
COUNT = """
import json, os, resource, sys
variables = json.loads(sys.argv[1])
sys.argv = ["fairseq-reservoir", "report"]
os.environ["FAIRSEQ_RESERVOIR_WITHOUT"] = "kept-memory"  # an import of the package would apply the repair before the forks
from fairseq_reservoir.fairseq_repairs import repair
from fairseq_reservoir.fairseq_repairs.allocator import keep_freed_memory
del os.environ["FAIRSEQ_RESERVOIR_WITHOUT"]
repair._states.clear()
for name, added in variables.items():
    if os.fork() == 0:
        os.environ.update(added)
        repair.apply([keep_freed_memory])
        begun = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(4):
            size = 2**26; b"1" * size
        faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - begun
        resident = int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize() / 2**20
        print(json.dumps([name, [keep_freed_memory.state, faults, resident]]), flush=True)
        os._exit(0)
    if os.wait()[1]:
        sys.exit(f"{name} failed")
"""
VARIABLES = {
    "none": {},
    "switched off": {WITHOUT: "kept-memory"},
    "limited": {allocator.KEPT_MIB: "16"},
    "the user's own": {"MALLOC_TRIM_THRESHOLD_": "131072"},
}


@pytest.fixture(scope="module")
def measured():
    """Return the state of the repair, the page faults and the resident MiB of a process with each of ``VARIABLES``."""
    environment = {name: value for name, value in (os.environ | FRESH).items() if value is not None}
    command = [sys.executable, "-c", COUNT, json.dumps(VARIABLES)]
    finished = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    return dict(map(json.loads, finished.stdout.splitlines()))


@glibc_only
def test_freed_pages_are_used_again(measured):
    state, faults, resident = measured["none"]
    assert state == "applied" and faults < 2 * 16_384
    state, faults_without, resident_without = measured["switched off"]
    assert state == "switched off" and faults_without >= 4 * 16_384
    assert 60 < resident - resident_without < 140


@glibc_only
def test_memory_above_the_limit_is_returned(measured):
    state, faults, resident = measured["limited"]
    _, _, resident_without_limit = measured["none"]
    assert state == "applied" and faults >= 3 * 12_288  # 48 of 64 MiB are returned each time
    assert 40 < resident_without_limit - resident


@glibc_only
def test_the_users_own_settings_are_kept(measured):
    state, faults, _ = measured["the user's own"]
    assert state == "not needed" and faults >= 4 * 16_384


@pytest.mark.parametrize("name, value, found", [
    ("MALLOC_MMAP_MAX_", "0", "MALLOC_MMAP_MAX_"),
    ("GLIBC_TUNABLES", "glibc.malloc.mmap_max=100", "GLIBC_TUNABLES"),
    ("GLIBC_TUNABLES", "glibc.rtld.nns=4", None),
    ("LD_PRELOAD", "/usr/lib/libjemalloc.so.2", "LD_PRELOAD"),
    ("LD_PRELOAD", "/usr/lib/libgomp.so.1", None),
])  # fmt: skip
def test_variables_that_count_as_the_users_own_settings(monkeypatch, name, value, found):
    for other in FRESH:
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setenv(name, value)
    assert allocator.users_own() == found


@pytest.mark.parametrize("text", ["0", "2048", "-1", "1.5", "256M", "9" * 25])
def test_an_invalid_limit_is_refused(monkeypatch, text):
    monkeypatch.setenv(allocator.KEPT_MIB, text)
    with pytest.raises(
        InputError, match=f"^{allocator.KEPT_MIB} {re.escape(text)}: must be a whole number from 1 to 2047; "
    ):
        allocator.most_kept()


def test_an_invalid_limit_is_refused_before_the_allocator_is_changed(monkeypatch):
    for name in FRESH:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(allocator.KEPT_MIB, "much")
    monkeypatch.setattr(allocator.ctypes, "CDLL", lambda name: pytest.fail("the allocator was changed"))
    with pytest.raises(InputError, match=f"^{allocator.KEPT_MIB} much: must be a whole number"):
        allocator.keep_freed_memory.put_right()


# Many tensors exceed 128 KiB, the size from which glibc uses mmap by default. The model is small enough for a short test.
WIDE = (
    "--encoder-embed-dim 256 --encoder-ffn-embed-dim 512 --encoder-layers 2 --decoder-layers 1"
    " --batch-size 80 --log-format json --log-interval 1"
)


@glibc_only
@pytest.mark.slow
def test_losses_and_weights_are_bit_identical(toy_data, tmp_path, monkeypatch):
    found = []
    for without in (None, "kept-memory"):
        for name, value in (FRESH | {WITHOUT: without}).items():
            monkeypatch.delenv(name, raising=False) if value is None else monkeypatch.setenv(name, value)
        folder = tmp_path / (without or "with")
        finished = start_training(
            toy_data, "--arch", "transformer", *WIDE.split(), "--max-update", 12, "--save-dir", folder, fresh=True
        )
        assert finished.returncode == 0, finished.stderr
        lines = [json.loads(line) for line in re.findall(r"\{\".*\}", finished.stdout + finished.stderr)]
        losses = [
            (line.get("train_loss", line.get("loss")), line.get("valid_loss"), line.get("gnorm")) for line in lines
        ]
        found.append((losses, torch.load(folder / "checkpoint_last.pt", weights_only=False)))
    (losses, run), (losses_without, run_without) = found
    assert len(losses) >= 12 and losses == losses_without
    assert run["model"].keys() == run_without["model"].keys()
    assert all(torch.equal(tensor, run_without["model"][name]) for name, tensor in run["model"].items())
    moments, moments_without = (one["last_optimizer_state"]["state"] for one in (run, run_without))
    assert all(torch.equal(state["exp_avg_sq"], moments_without[i]["exp_avg_sq"]) for i, state in moments.items())
