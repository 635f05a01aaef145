"""``mask_flips`` of fairseq-train's log, counted again from a checkpoint of every update."""

import json
import re
from types import SimpleNamespace

import pytest
import torch
from fairseq.logging import metrics

from fairseq_reservoir.masks.masked_linear import MaskedLinear
from fairseq_reservoir.trainer import mask_flips
from tests.support.commands import load, start_training
from tests.support.masks_by_sorting import expected_entries

ARCH = "--arch supermask_one_layer_transformer --encoder-layers 2 --decoder-layers 1 --share-decoder-input-output-embed --lr 0.01".split()
LOG = "--log-format json --log-interval 4 --max-update 12".split()
COATS = ("--mask-kind", "signed", "--mask-keep-ratio", 0.8, "--mask-coats", "0.5,0.2", "--update-freq", 2)


def logged(output):
    """The value at each update whose line within an epoch has one."""
    lines = [json.loads(line) for line in re.findall(r"\| train_inner \| (\{.*)", output)]
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
    ((), (0.5,), False, ""),
    (("--fast",), (0.5,), False, ""),
    (("--optimizer", "sgd", "--lr", 0.5), (0.5,), False, ""),  # torch's own, which leaves traces on the tensors it writes
    (("--freeze", "ffn,emb"), (0.5,), False, "attn"),
    (COATS, (0.8, 0.5, 0.2), True, ""),
], ids=["binary", "fast", "sgd", "frozen", "coats"])  # fmt: skip
def test_the_share_of_entries_that_an_update_changes(toy_data, tmp_path, flags, ratios, signed, part):
    """A line at update 8 compares the masks that updates 7 and 8 worked with: those of the scores that updates 6 and 7 left."""
    run = start_training(toy_data, *ARCH, *flags, *LOG, "--save-interval-updates", 1, "--save-dir", tmp_path)
    assert run.returncode == 0, run.stderr
    found = logged(run.stdout + run.stderr)
    assert sorted(found) == [4, 8, 12]
    for update, share in found.items():
        before, after = (masks_after(tmp_path, number, ratios, signed, part) for number in (update - 2, update - 1))
        changed = sum(int((before[name] != after[name]).sum()) for name in before)
        assert share == pytest.approx(changed / sum(mask.numel() for mask in before.values()), abs=1e-6)
        assert changed > 0


@pytest.mark.parametrize(
    "schedule", ["--freeze-update-every ffn:4", "--freeze-schedule 0:ffn;4:-ffn", "--freeze-rotate 1:4"]
)
def test_what_is_thawed_at_an_update_with_a_line_is_left_out(toy_data, schedule):
    """A mask that was frozen in the update before has nothing to be compared with; the training ended there."""
    flags = [
        "--optimizer",
        "freeze_skip",
        *schedule.split(),
        *LOG,
        "--max-update",
        10,
        "--no-save",
        "--log-format",
        "json",
    ]
    run = start_training(toy_data, *ARCH, *flags)
    assert run.returncode == 0, run.stderr
    assert sorted(logged(run.stdout + run.stderr)) == [4, 8]


@pytest.mark.parametrize("flags", [
    ["--arch", "reservoir_transformer", "--reservoir-encoder", "LF"],
    [*ARCH, "--mask-random"],
], ids=["no masks", "no scores"])  # fmt: skip
def test_no_line_without_learned_masks(toy_data, tmp_path, flags):
    run = start_training(toy_data, *flags, *LOG, "--no-save")
    assert run.returncode == 0, run.stderr
    assert "train_inner" in run.stdout + run.stderr and "mask_flips" not in run.stdout + run.stderr


class OneMatrix:
    """A trainer of one masked matrix, 1 x 8, half of it kept; each update moves one more score from the lowest place to the highest."""

    def __init__(self, interval):
        self.cfg = SimpleNamespace(common=SimpleNamespace(log_interval=interval))
        self.model, self.updates = MaskedLinear(8, 1, 0.5, seed=1), 0
        self.model.scores.data[:] = torch.arange(1.0, 9)

    def get_model(self):
        return self.model

    def get_num_updates(self):
        return self.updates

    def step(self, left_out=False):
        self.model.set_num_updates(self.updates)
        self.model(torch.ones(1, 8))
        if not left_out:
            self.model.scores.data[0, self.updates] = 100.0 + self.updates
            self.updates += 1


@pytest.mark.parametrize("interval, left_out, expected", [
    (1, (), {2: 0.25, 3: 0.25, 4: 0.25}),
    (4, (), {4: 0.25}),
    (4, (3,), {4: 0.25}),  # after update 3, whose masks are held
    (1, (2, 3), {2: 0.25, 3: 0.25, 4: 0.25}),
    (3, (1,), {3: 0.25}),
])  # fmt: skip
def test_updates_that_fairseq_leaves_out(interval, left_out, expected):
    """As after an overflow: the number of updates stays, the next step has the same masks. An update: one in, one out of 8 entries."""
    trainer, found = OneMatrix(interval), {}
    for update in range(4):
        for skipped in [True] * (update in left_out) + [False]:
            with metrics.aggregate(new_root=True) as logs:
                trainer.step(skipped)
                mask_flips.measure(trainer)
            if "mask_flips" in logs:
                assert trainer.updates not in found
                found[trainer.updates] = logs["mask_flips"].avg
    assert found == expected
