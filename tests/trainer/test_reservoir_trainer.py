"""Repairs in ``ReservoirTrainer`` can be switched off by name, like all other repairs."""

import contextlib
from types import SimpleNamespace

import pytest
import torch
from fairseq.data import iterators

from fairseq_reservoir.fairseq_repairs import epochs, learning_rate, mixed_precision, moving_average, repair, stopping
from fairseq_reservoir.fairseq_repairs.mixed_precision import SkippedUpdate
from tests.support.epoch_iterators import over


@pytest.fixture(params=[repair.APPLIED, repair.SWITCHED_OFF])
def is_applied(request, monkeypatch):
    """Apply or switch off all repairs. Return whether they are applied."""
    monkeypatch.setattr(repair, "_states", dict.fromkeys(repair._states, request.param))
    return request.param == repair.APPLIED


def test_patience(is_applied, monkeypatch):
    early_stopping = SimpleNamespace(best=2.0, num_runs=3)
    monkeypatch.setattr(stopping, "_command", lambda: SimpleNamespace(should_stop_early=early_stopping))
    saved = stopping.patience_state()
    assert bool(saved) == is_applied
    early_stopping.num_runs = 0
    trainer = SimpleNamespace(cfg=SimpleNamespace(checkpoint=SimpleNamespace(reset_meters=False)))
    stopping.restore_patience(trainer, {"fairseq_reservoir_patience": {"best": 2.0, "num_runs": 3}}, False)
    assert early_stopping.num_runs == (3 if is_applied else 0)


def test_data_loaders(is_applied):
    iterator = over([[0], [1]])
    assert isinstance(iterator, iterators.EpochBatchIterator)
    iterator.reuse_dataloader = True
    epochs.reload_every_epoch(iterator)
    assert iterator.reuse_dataloader != is_applied


def test_plateau(is_applied):
    """The trainer is ``None``, so that the repair fails if it is applied."""
    if is_applied:
        with pytest.raises(AttributeError):
            learning_rate.step_after_epoch(None, {"train_iterator": {"epoch": 2}, "val_loss": 1.0})
    else:
        learning_rate.step_after_epoch(None, {"train_iterator": {"epoch": 2}, "val_loss": 1.0})


def test_average(is_applied):
    trainer = SimpleNamespace(
        cfg=SimpleNamespace(ema=SimpleNamespace(store_ema=True)), ema=SimpleNamespace(update_freq_counter=2)
    )
    with moving_average.average_loaded_later(trainer):
        assert trainer.cfg.ema.store_ema != is_applied
    assert trainer.cfg.ema.store_ema
    assert bool(moving_average.add_counter(trainer, {"extra_state": {}})["extra_state"]) == is_applied


@pytest.mark.parametrize("gpu", [False, True])
def test_overflow(is_applied, gpu, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    expected = SkippedUpdate if is_applied and not gpu else OverflowError
    with pytest.raises(expected, match="scale"), mixed_precision.overflow_skips_update():
        raise OverflowError("setting loss scale to: 1")
    with contextlib.suppress(SkippedUpdate), mixed_precision.overflow_skips_update():
        pass
