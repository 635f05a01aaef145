"""Four ranks share one model. Two ranks that are stopped in every phase of a freeze schedule train as if uninterrupted."""

import hashlib

import pytest

from tests.support.several_processes import in_processes, train_as

MODEL = "--encoder-layers 2 --decoder-layers 2 --disable-validation --no-epoch-checkpoints".split()
SCHEDULES = {
    "schedule": ["--freeze-schedule", "0:emb;3:encoder.layers.0,ffn;6:-emb"],
    "progressive": ["--freeze-progressive", "2:3"],
    "rotate": ["--freeze-rotate", "1:2"],
    "update every": ["--freeze-update-every", "ffn:3,emb:2"],
}

# One in each phase of the first schedule: updates 0 to 2, 3 to 5, and from 6 on.
STOPS = 2, 4, 7, 8


def hashes_of(weights):
    return {name: hashlib.sha256(tensor.numpy().tobytes()).hexdigest() for name, tensor in weights.items()}


def two_updates(rank, folder, data):
    flags = "--reservoir-encoder LTF --reservoir-decoder LT --batch-size 4 --max-update 2 --no-save --disable-validation".split()
    run = train_as(rank, 4, folder / "meeting", data, *flags)
    return {
        "start": hashes_of(run.initial),
        "end": hashes_of(run.weights),
        "frozen": [e.name for e in run.model.slot_table.entries if not e.trained],
    }


@pytest.mark.slow
def test_four_processes_agree(toy_data, tmp_path):
    found = in_processes(4, two_updates, tmp_path, toy_data)
    assert all(process == found[0] for process in found)
    start, end = found[0]["start"], found[0]["end"]
    kept = {name for name in end if end[name] == start[name]}
    assert (
        set(found[0]["frozen"]) <= kept
        and {name for name in kept - set(found[0]["frozen"]) if name.endswith("fc1.weight")} == set()
    )


def with_and_without_stops(rank, folder, data):
    """Schedule -> (hashes of a run of 8 updates, hashes of a run that was stopped in every phase of its schedule)."""
    return {kind: _with_and_without_stops(rank, folder / kind, data, flags) for kind, flags in SCHEDULES.items()}


def _with_and_without_stops(rank, folder, data, schedule):
    folder.mkdir(exist_ok=True)

    def run(name, updates):
        flags = [
            *MODEL,
            "--optimizer",
            "freeze_skip",
            *schedule,
            "--ddp-backend",
            "legacy_ddp",
            "--max-update",
            updates,
        ]
        return hashes_of(
            train_as(rank, 2, folder / f"{name} {updates}", data, *flags, "--save-dir", folder / name).weights
        )

    return run("whole", 8), [run("stopped", updates) for updates in STOPS]


@pytest.mark.slow
def test_two_processes_agree_and_resume_in_every_phase_of_every_schedule(toy_data, tmp_path):
    one, other = in_processes(2, with_and_without_stops, tmp_path, toy_data)
    assert one == other
    for kind, (whole, stopped) in one.items():
        assert stopped[-1] == whole, kind
        assert len({str(hashes) for hashes in stopped}) == len(STOPS), kind
