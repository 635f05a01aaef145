"""``mask_flips`` of fairseq-train's log, counted again from a checkpoint of every update."""

import json
import re

import pytest

from tests.support.commands import load, start_training
from tests.support.masks_by_sorting import expected_entries

ARCH = "--arch supermask_one_layer_transformer --encoder-layers 2 --decoder-layers 1 --share-decoder-input-output-embed --lr 0.01".split()
LOG = "--log-format json --log-interval 4 --max-update 12".split()


def logged(output):
    """The value at each update whose line has one, and at the end of the epoch."""
    lines = [json.loads(line) for line in re.findall(r"\| train_inner \| (\{.*)", output)]
    return {int(line["num_updates"]): float(line["mask_flips"]) for line in lines if "mask_flips" in line}


def masks_after(folder, update, ratios, signed):
    (file,) = folder.glob(f"checkpoint_*_{update}.pt")
    scores = {name: tensor for name, tensor in load(folder, file.name)["model"].items() if name.endswith(".scores")}
    assert len(scores) > 10
    return {name: expected_entries(tensor, ratios, signed=signed) for name, tensor in scores.items()}


@pytest.mark.parametrize("flags, ratios, signed", [
    ((), (0.5,), False),
    (("--fast",), (0.5,), False),
    (("--mask-kind", "signed", "--mask-keep-ratio", 0.8, "--mask-coats", "0.5,0.2", "--update-freq", 2), (0.8, 0.5, 0.2), True),
], ids=["binary", "fast", "coats"])  # fmt: skip
def test_the_share_of_entries_that_an_update_changes(toy_data, tmp_path, flags, ratios, signed):
    """A line at update 8 compares the masks of updates 7 and 8: those of the scores that updates 6 and 7 left."""
    run = start_training(toy_data, *ARCH, *flags, *LOG, "--save-interval-updates", 1, "--save-dir", tmp_path)
    assert run.returncode == 0, run.stderr
    found = logged(run.stdout + run.stderr)
    assert sorted(found) == [4, 8, 12]
    for update, share in found.items():
        before, after = (masks_after(tmp_path, number, ratios, signed) for number in (update - 2, update - 1))
        changed = sum(int((before[name] != after[name]).sum()) for name in before)
        assert share == pytest.approx(changed / sum(mask.numel() for mask in before.values()), abs=1e-6)
        assert changed > 0


@pytest.mark.parametrize("flags", [
    ["--arch", "reservoir_transformer", "--reservoir-encoder", "LF"],
    [*ARCH, "--mask-random"],
], ids=["no masks", "no scores"])  # fmt: skip
def test_no_line_without_learned_masks(toy_data, tmp_path, flags):
    run = start_training(toy_data, *flags, *LOG, "--no-save")
    assert run.returncode == 0, run.stderr
    assert "train_inner" in run.stdout + run.stderr and "mask_flips" not in run.stdout + run.stderr
