"""``mask_flips`` in fairseq-train's log, compared with counts from a checkpoint of every update."""

import json
from types import SimpleNamespace

import pytest
import torch
from fairseq.logging import metrics

from fairseq_reservoir.masks.masked_linear import MaskedLinear
from fairseq_reservoir.trainer import mask_flips
from tests.support.commands import load, train
from tests.support.masks_by_sorting import expected_entries

ARCH = "--arch supermask_one_layer_transformer --encoder-layers 2 --decoder-layers 1 --share-decoder-input-output-embed --lr 0.01".split()
LOG = "--log-format json --log-interval 3 --max-update 6 --disable-validation --no-epoch-checkpoints".split()
COATS = ("--mask-kind", "signed", "--mask-keep-ratio", 0.8, "--mask-coats", "0.5,0.2", "--update-freq", 2)


@pytest.fixture
def logged(toy_data, caplog):
    """Return a function that trains and returns the logged lines of updates 3 and 6."""

    def lines(*flags):
        with caplog.at_level("INFO"):
            train(toy_data, *flags, *LOG)
        found = [json.loads(record.message) for record in caplog.records if record.name == "train_inner"]
        assert [line["num_updates"] for line in found] == ["3", "6"]
        return found

    return lines


def flips(lines):
    """Return the logged values by update. Lines without a value are left out."""
    return {
        int(line["num_updates"]): float(line["mask_flips"])
        for line in lines
        if line.get("mask_flips", "None") != "None"
    }


def masks_after(folder, update, ratios, signed, part):
    (file,) = folder.glob(f"checkpoint_*_{update}.pt")
    state = load(folder, file.name)["model"]
    scores = {name: tensor for name, tensor in state.items() if name.endswith(".scores") and part in name}
    assert len(scores) > 5
    return {name: expected_entries(tensor, ratios, signed=signed) for name, tensor in scores.items()}


@pytest.mark.parametrize("flags, ratios, signed, part", [
    (("--fast",), (0.5,), False, ""),
    (("--optimizer", "sgd", "--lr", 0.5), (0.5,), False, ""),  # torch's optimizer, which increments the version counters of tensors
    (("--freeze", "ffn,emb"), (0.5,), False, "attn"),
    (COATS, (0.8, 0.5, 0.2), True, ""),
], ids=["fast", "sgd", "frozen", "coats"])  # fmt: skip
def test_share_of_changed_entries(logged, tmp_path, flags, ratios, signed, part):
    """The line of update 6 compares the masks of updates 5 and 6. They are derived from the scores after updates 4 and 5."""
    found = flips(logged(*ARCH, *flags, "--save-interval-updates", 1, "--save-dir", tmp_path))
    assert sorted(found) == [3, 6]
    for update, share in found.items():
        before, after = (masks_after(tmp_path, number, ratios, signed, part) for number in (update - 2, update - 1))
        changed = sum(int((before[name] != after[name]).sum()) for name in before)
        assert share == pytest.approx(changed / sum(mask.numel() for mask in before.values()), abs=1e-6)
        assert changed > 0


@pytest.mark.parametrize("schedule", [
    "--freeze-update-every ffn:3",
    pytest.param("--freeze-schedule 0:ffn;3:-ffn", marks=pytest.mark.slow),
    pytest.param("--freeze-rotate 1:3", marks=pytest.mark.slow),
])  # fmt: skip
def test_masks_unfrozen_in_a_logged_update_are_left_out(logged, schedule):
    """Such a mask was frozen in the update before, so that there is nothing to compare it with. The training once crashed here."""
    assert sorted(flips(logged(*ARCH, "--optimizer", "freeze_skip", *schedule.split(), "--no-save"))) == [3, 6]


@pytest.mark.parametrize("flags", [
    ["--arch", "reservoir_transformer", "--reservoir-encoder", "LF"],
    [*ARCH, "--mask-random"],
], ids=["no masks", "no scores"])  # fmt: skip
def test_no_line_without_learned_masks(logged, flags):
    assert not any("mask_flips" in line for line in logged(*flags, "--no-save"))


class OneMatrix:
    """Stand-in for a trainer with one masked 1 x 8 matrix that keeps half of its entries. An update makes the lowest score the highest."""

    masks_before = None  # as in ReservoirTrainer

    def __init__(self, interval):
        self.cfg = SimpleNamespace(common=SimpleNamespace(log_interval=interval))
        self.model, self.updates = MaskedLinear(8, 1, 0.5, seed=1), 0
        self.model.scores.data[:] = torch.arange(1.0, 9)

    def get_model(self):
        return self.model

    def get_num_updates(self):
        return self.updates

    def step(self, overflow=False):
        self.model.set_num_updates(self.updates)
        self.model(torch.ones(1, 8))
        if not overflow:
            self.model.scores.data[0, self.updates] = 100.0 + self.updates
            self.updates += 1


@pytest.mark.parametrize("interval, overflows, expected", [
    (1, (), {2: 0.25, 3: 0.25, 4: 0.25}),
    (4, (), {4: 0.25}),
    (4, (3,), {4: 0.25}),  # overflow after update 3, when its masks are kept for the comparison
    (1, (2, 3), {2: 0.25, 3: 0.25, 4: 0.25}),
    (3, (1,), {3: 0.25}),
])  # fmt: skip
def test_updates_skipped_after_an_overflow(interval, overflows, expected):
    """A skipped update keeps its number and its masks. Each other update adds one entry to the mask and removes one: 2 of 8."""
    trainer, found = OneMatrix(interval), {}
    for update in range(4):
        for overflow in [True] * (update in overflows) + [False]:
            with metrics.aggregate(new_root=True) as logs:
                trainer.step(overflow)
                mask_flips.measure(trainer)
            if "mask_flips" in logs:
                assert trainer.updates not in found
                found[trainer.updates] = logs["mask_flips"].avg
    assert found == expected
