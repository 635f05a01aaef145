"""Warnings of flags that are hardly meant: by hand, and once by a training."""

from types import SimpleNamespace

import pytest

from fairseq_reservoir.masks.masked_weight import masked_modules
from fairseq_reservoir.studies.report.metrics import is_higher
from fairseq_reservoir.trainer.likely_mistakes import likely_mistakes
from tests.support.commands import train

MASKS = "--arch supermask_one_layer_transformer --encoder-layers 2 --decoder-layers 1".split()


def test_a_schedule_that_the_training_does_not_finish(toy_data, caplog):
    """Six updates, 0 to 5, of 0.7 / 100 each: 1 - 5 * 0.007."""
    flags = [*MASKS, "--mask-keep-ratio", 0.3, "--mask-keep-schedule", "100:0.3", "--max-update", 6]
    run = train(toy_data, *flags, "--no-save", "--disable-validation")
    masks = [module.mask for module in masked_modules(run.model.eval()).values()]
    assert sum(int(mask.sum()) for mask in masks) / sum(mask.numel() for mask in masks) == pytest.approx(
        0.965, abs=0.001
    )
    (said,) = [record.getMessage() for record in caplog.records if "--mask-keep-schedule" in record.getMessage()]
    assert said == (
        "--mask-keep-schedule 100:0.3: continues after --max-update 6; the trained model keeps 0.965 of its weights and not 0.3, in"
        " checkpoints and exports too"
    )


@pytest.mark.parametrize("updates, warned", [(0, False), (999, True), (1000, False), (1001, False)])
def test_the_last_update_has_a_number_less(toy_data, caplog, updates, warned):
    """At update 998 of a schedule to 1000 a share of 0.7 * 2 / 1000 is still to go, at 999 half of that."""
    found = likely_mistakes(configuration(optimization={"max_update": updates}, model=masks("1000:0.3", 0.3)))
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
def test_the_worst_for_the_best(metric, highest, warned):
    given = {"best_checkpoint_metric": metric, "maximize_best_checkpoint_metric": highest}
    found = likely_mistakes(configuration(checkpoint=given))
    assert [text.startswith(f"--best-checkpoint-metric {metric}: without --maximize") for text in found] == [
        True
    ] * warned
    assert not warned or is_higher(metric)  # by which the report knows better, too


def masks(schedule, ratio):
    coats = dict(
        mask_coats=None,
        mask_scope="tensor",
        mask_scores="magnitude",
        mask_kind="binary",
        mask_pin=0.0,
        mask_random=False,
    )
    return dict(coats, mask_keep_schedule=schedule, mask_keep_ratio=ratio)


def configuration(**groups):
    usual = {
        "optimization": {"max_update": 0},
        "model": {},
        "checkpoint": {"best_checkpoint_metric": "loss", "maximize_best_checkpoint_metric": False},
    }
    return SimpleNamespace(**{name: SimpleNamespace(**values) for name, values in (usual | groups).items()})
