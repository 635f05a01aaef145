"""Warnings about valid flags that are probably mistakes. One test runs a training; the others call the check directly."""

from types import SimpleNamespace

import pytest

from fairseq_reservoir.masks.masked_weight import masked_modules
from fairseq_reservoir.studies.report.metrics import is_higher
from fairseq_reservoir.trainer.likely_mistakes import likely_mistakes
from tests.support.commands import train

MASKS = "--arch supermask_one_layer_transformer --encoder-layers 2 --decoder-layers 1".split()


def test_schedule_longer_than_the_training(toy_data, caplog):
    """There are six updates, 0 to 5. Each lowers the kept share by 0.7 / 100, so that the last one keeps 1 - 5 * 0.007."""
    flags = [*MASKS, "--mask-keep-ratio", 0.3, "--mask-keep-schedule", "100:0.3", "--max-update", 6]
    run = train(toy_data, *flags, "--no-save", "--disable-validation")
    kept_masks = [module.mask for module in masked_modules(run.model.eval()).values()]
    assert sum(int(mask.sum()) for mask in kept_masks) / sum(mask.numel() for mask in kept_masks) == pytest.approx(
        0.965, abs=0.001
    )
    (warning,) = [record.getMessage() for record in caplog.records if "--mask-keep-schedule" in record.getMessage()]
    assert warning == (
        "--mask-keep-schedule 100:0.3: ends after --max-update 6; the trained model, its checkpoints and its exports will keep"
        " a fraction 0.965 of the weights, not 0.3"
    )


@pytest.mark.parametrize("updates, warned", [(0, False), (999, True), (1000, False), (1001, False)])
def test_updates_are_numbered_from_0(toy_data, caplog, updates, warned):
    """--max-update N ends with update N - 1. Update 998 keeps 0.7 * 2 / 1000 more than 0.3, update 999 half as much more."""
    found = likely_mistakes(configuration(optimization={"max_update": updates}, model=mask_options("1000:0.3", 0.3)))
    assert bool(found) is warned


@pytest.mark.parametrize(
    "metric, highest, warned",
    [
        ("bleu", False, True),
        ("bleu", True, False),
        ("accuracy", False, True),
        ("loss", False, False),
        ("loss", True, False),
    ],
)
def test_checkpoint_metric_in_the_wrong_direction(metric, highest, warned):
    given = {"best_checkpoint_metric": metric, "maximize_best_checkpoint_metric": highest}
    found = likely_mistakes(configuration(checkpoint=given))
    assert [text.startswith(f"--best-checkpoint-metric {metric}: add --maximize") for text in found] == [True] * warned
    assert not warned or is_higher(metric)  # the report uses this function too


def mask_options(schedule, ratio):
    defaults = dict(
        mask_coats=None,
        mask_scope="tensor",
        mask_scores="magnitude",
        mask_kind="binary",
        mask_pin=0.0,
        mask_random=False,
    )
    return dict(defaults, mask_keep_schedule=schedule, mask_keep_ratio=ratio)


def configuration(**groups):
    defaults = {
        "optimization": {"max_update": 0},
        "model": {},
        "checkpoint": {"best_checkpoint_metric": "loss", "maximize_best_checkpoint_metric": False},
    }
    return SimpleNamespace(**{name: SimpleNamespace(**values) for name, values in (defaults | groups).items()})
