"""``reduce_lr_on_plateau`` keeps its count of bad epochs when a training resumes."""

from argparse import Namespace
from types import SimpleNamespace

import pytest
import torch
from fairseq.optim.lr_scheduler import LR_SCHEDULER_REGISTRY
from fairseq.optim.sgd import SGD

from fairseq_reservoir.fairseq_repairs.learning_rate import step_after_epoch
from tests.support.commands import load, train

# 160 sentences: 4 updates in an epoch.
SMALL = (
    "--reservoir-encoder L --decoder-layers 1 --no-epoch-checkpoints --batch-size 40 --dropout 0.1 --lr 0.01".split()
)
# A loss counts as better only below a tenth of the best loss. After the first epoch no epoch achieves this.
PLATEAU = "--lr-scheduler reduce_lr_on_plateau --lr-shrink 0.5 --lr-patience 1 --lr-threshold 0.9".split()


def learning_rate(state):
    return state["last_optimizer_state"]["param_groups"][0]["lr"]


def scheduler_state(state):
    return state["optimizer_history"][-1]["lr_scheduler_state"]


def test_a_resumed_run_has_the_same_rates_and_weights(toy_data, tmp_path):
    """Epochs 2 and 3 are bad, so epoch 4 has half the rate. The run is stopped after epoch 3.

    Its checkpoint has one bad epoch, because it was saved before epoch 3 was counted.
    """
    flags = [*SMALL, *PLATEAU]
    whole = train(toy_data, *flags, "--max-epoch", 4, "--save-dir", tmp_path / "whole").weights
    train(toy_data, *flags, "--max-epoch", 3, "--save-dir", tmp_path / "parts")
    stopped = load(tmp_path / "parts")
    assert (learning_rate(stopped), scheduler_state(stopped)["num_bad_epochs"]) == (0.01, 1)
    resumed = train(toy_data, *flags, "--max-epoch", 4, "--save-dir", tmp_path / "parts").weights
    ours, expected = load(tmp_path / "parts"), load(tmp_path / "whole")
    assert learning_rate(ours) == learning_rate(expected) == 0.005 and scheduler_state(ours) == scheduler_state(
        expected
    )
    assert all(torch.equal(resumed[name], whole[name]) for name in whole)


def build_scheduler(patience):
    """Return fairseq's scheduler with a learning rate of 1, which it halves."""
    flags = dict(lr=[1.0], lr_patience=patience, lr_shrink=0.5, lr_threshold=0.0, warmup_init_lr=-1, warmup_updates=0)
    optimizer = SGD(Namespace(lr=[1.0], momentum=0.0, weight_decay=0.0), [torch.nn.Parameter(torch.zeros(1))])
    scheduler_class = LR_SCHEDULER_REGISTRY["reduce_lr_on_plateau"]
    return scheduler_class(Namespace(**flags, maximize_best_checkpoint_metric=False), optimizer)


def test_an_older_checkpoint_loads():
    scheduler = build_scheduler(patience=1)
    scheduler.load_state_dict({"best": 3.0, "last_epoch": 4})
    assert scheduler.state_dict() == {"best": 3.0, "last_epoch": 4, "num_bad_epochs": 0, "cooldown_counter": 0}


@pytest.mark.parametrize(
    "changes, rate",
    [
        ({}, 0.5),
        ({"loss": None}, 1),  # the epoch was not validated
        ({"loss": 2.0}, 1),  # better than 3
        ({"iterations_in_epoch": 1}, 1),
        ({"num_updates": 0}, 1),
        ({"validate_interval": 2}, 1),  # epoch 3 was validated because the run stopped
        ({"validate_interval": 3}, 0.5),
        ({"validate_interval": 2, "validate_interval_updates": 4}, 0.5),  # update 12 is validated
        ({"validate_interval": 2, "validate_interval_updates": 5}, 1),
    ],
    ids=str,
)
def test_the_loss_of_the_saved_epoch_counts_once(changes, rate):
    """The checkpoint of epoch 3 (update 12) has loss 4, and the best is 3. With a patience of 0 the rate is halved."""
    values = dict(loss=4.0, iterations_in_epoch=0, num_updates=12, validate_interval=1, validate_interval_updates=0)
    values |= changes
    scheduler = build_scheduler(patience=0)
    scheduler.load_state_dict({"best": 3.0})
    trainer = SimpleNamespace(
        cfg=SimpleNamespace(dataset=SimpleNamespace(**values)),
        lr_scheduler=scheduler,
        lr_step=scheduler.step,
        get_num_updates=lambda: values["num_updates"],
    )
    iterator_state = {"epoch": 4, "iterations_in_epoch": values["iterations_in_epoch"]}
    step_after_epoch(trainer, {"train_iterator": iterator_state, "val_loss": values["loss"]})
    assert scheduler.optimizer.get_lr() == rate
