"""The repair of glibc's allocator: fewer page faults, the same bits, and the ways to limit it or to do without."""

import functools
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
# Ten times 64 MiB, 16,384 pages, as torch asks for them; then what is resident without. With these words the package imports no fairseq.
COUNT = """
import resource, sys
sys.argv = ["fairseq-reservoir", "report"]
from fairseq_reservoir.fairseq_repairs.allocator import keep_freed_memory
from fairseq_reservoir.fairseq_repairs.repair import apply
apply([keep_freed_memory])
begun = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    size = 2**26; b"1" * size
faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - begun
resident = int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize() / 2**20
print(keep_freed_memory.state, faults, resident, sep=",")
"""


def environment(**variables):
    return {name: value for name, value in (os.environ | FRESH | variables).items() if value is not None}


@functools.cache
def count(**variables):
    """State of the repair, page faults and MiB that stay resident, of a process with these environment variables."""
    ended = subprocess.run(
        [sys.executable, "-c", COUNT], cwd=ROOT, env=environment(**variables), capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    state, faults, resident = ended.stdout.strip().split(",")
    return state, int(faults), float(resident)


@glibc_only
def test_pages_come_from_the_kernel_once():
    state, faults, resident = count()
    assert state == "applied" and faults < 2 * 16_384
    state, faults_without, resident_without = count(**{WITHOUT: "kept-memory"})
    assert state == "switched off" and faults_without >= 10 * 16_384
    assert 60 < resident - resident_without < 140


@glibc_only
def test_a_limit_gives_the_rest_back():
    state, faults, resident = count(**{allocator.KEPT_MIB: "16"})
    _, _, resident_without_limit = count()
    assert state == "applied" and faults >= 9 * 12_288  # of 64 MiB, 48 each time
    assert 40 < resident_without_limit - resident


@glibc_only
def test_what_the_user_has_set_stays():
    state, faults, _ = count(MALLOC_TRIM_THRESHOLD_="131072")
    assert state == "not needed" and faults >= 10 * 16_384


@pytest.mark.parametrize("name, value, found", [
    ("MALLOC_MMAP_MAX_", "0", "MALLOC_MMAP_MAX_"),
    ("GLIBC_TUNABLES", "glibc.malloc.mmap_max=100", "GLIBC_TUNABLES"),
    ("GLIBC_TUNABLES", "glibc.rtld.nns=4", None),
    ("LD_PRELOAD", "/usr/lib/libjemalloc.so.2", "LD_PRELOAD"),
    ("LD_PRELOAD", "/usr/lib/libgomp.so.1", None),
])  # fmt: skip
def test_what_counts_as_set_by_the_user(monkeypatch, name, value, found):
    for other in FRESH:
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setenv(name, value)
    assert allocator.users_own() == found


@pytest.mark.parametrize("text", ["0", "2048", "-1", "1.5", "256M", "9" * 25])
def test_a_limit_that_is_none_is_refused(monkeypatch, text):
    monkeypatch.setenv(allocator.KEPT_MIB, text)
    with pytest.raises(
        InputError, match=f"^{allocator.KEPT_MIB} {re.escape(text)}: must be a whole number from 1 to 2047; "
    ):
        allocator.most_kept()


def test_it_is_refused_before_anything_is_set(monkeypatch):
    for name in FRESH:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(allocator.KEPT_MIB, "much")
    monkeypatch.setattr(allocator.ctypes, "CDLL", lambda name: pytest.fail("set"))
    with pytest.raises(InputError, match=f"^{allocator.KEPT_MIB} much: must be a whole number"):
        allocator.keep_freed_memory.put_right()


# Large enough that many tensors exceed the 128 KiB from which glibc asks the kernel, small enough for a moment.
WIDE = (
    "--encoder-embed-dim 256 --encoder-ffn-embed-dim 512 --encoder-layers 2 --decoder-layers 1"
    " --batch-size 80 --log-format json --log-interval 1"
)


@glibc_only
@pytest.mark.slow
def test_no_bit_of_loss_or_weights_changes(toy_data, tmp_path, monkeypatch):
    found = []
    for without in (None, "kept-memory"):
        for name, value in (FRESH | {WITHOUT: without}).items():
            monkeypatch.delenv(name, raising=False) if value is None else monkeypatch.setenv(name, value)
        folder = tmp_path / (without or "with")
        ended = start_training(
            toy_data, "--arch", "transformer", *WIDE.split(), "--max-update", 12, "--save-dir", folder, fresh=True
        )
        assert ended.returncode == 0, ended.stderr
        lines = [json.loads(line) for line in re.findall(r"\{\".*\}", ended.stdout + ended.stderr)]
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
