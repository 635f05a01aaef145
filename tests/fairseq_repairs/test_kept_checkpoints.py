"""The checkpoints that a training keeps: those of ``--save-interval-updates`` at the end of an epoch, and the N best."""

import inspect
import random
from pathlib import Path
from types import SimpleNamespace

import pytest
from fairseq import checkpoint_utils
from fairseq.dataclass.configs import CheckpointConfig

from fairseq_reservoir.fairseq_repairs import stopping
from tests.support.commands import train


class Trainer:
    """Stub trainer that saves empty files."""

    data_parallel_rank, checkpoint_suffix, task = 0, "", None
    should_save_checkpoint_on_current_rank, always_call_state_dict_during_save_checkpoint = True, False

    def __init__(self):
        self.updates, self.extra_states = 0, {}

    def get_num_updates(self):
        return self.updates

    def consolidate_optimizer(self):
        pass

    def save_checkpoint(self, filename, extra_state):
        Path(filename).touch()
        self.extra_states[Path(filename).name] = extra_state
        return filename


UPDATES_PER_EPOCH = 4


def files_of(folder, updates, scores=(), plain=False, trainer=None, **flags):
    """Save after each of ``updates``, in epochs of four updates. Return the names of the files in the folder."""
    stopping.forget_earlier_runs()
    cfg, trainer = CheckpointConfig(save_dir=str(folder), **flags), trainer or Trainer()
    save = inspect.unwrap(checkpoint_utils.save_checkpoint) if plain else checkpoint_utils.save_checkpoint
    for update, score in zip(updates, [*scores, *[None] * len(updates)]):
        trainer.updates, ends = update, update % UPDATES_PER_EPOCH == 0
        place = {"epoch": update // UPDATES_PER_EPOCH + 1, "iterations_in_epoch": update % UPDATES_PER_EPOCH}
        epoch = place["epoch"] - ends
        save(cfg, trainer, SimpleNamespace(epoch=epoch, end_of_epoch=lambda: ends, state_dict=lambda: place), score)
    return {path.name for path in folder.iterdir()}


EVERY_SECOND = {"save_interval_updates": 2, "no_epoch_checkpoints": True, "no_last_checkpoints": True}


def test_an_interval_that_ends_an_epoch_is_saved(tmp_path):
    trainer = Trainer()
    found = files_of(tmp_path, [2, 4, 6, 8], trainer=trainer, **EVERY_SECOND)
    assert found == {"checkpoint_1_2.pt", "checkpoint_1_4.pt", "checkpoint_2_6.pt", "checkpoint_2_8.pt"}
    places = {name: state["train_iterator"] for name, state in trainer.extra_states.items()}
    assert places["checkpoint_1_2.pt"] == {"epoch": 1, "iterations_in_epoch": 2}
    assert places["checkpoint_1_4.pt"] == {"epoch": 2, "iterations_in_epoch": 0}


def test_plain_fairseq_does_not_save_it(tmp_path):
    assert files_of(tmp_path, [4], plain=True, **EVERY_SECOND) == set()


def test_last_and_best_are_saved_as_well(tmp_path):
    flags = EVERY_SECOND | {"no_last_checkpoints": False}
    assert files_of(tmp_path, [4], [1.5], **flags) == {"checkpoint_1_4.pt", "checkpoint_last.pt", "checkpoint_best.pt"}
    # This epoch was not validated, so its checkpoint cannot be the best.
    assert files_of(tmp_path / "other", [4], **flags) == {"checkpoint_1_4.pt", "checkpoint_last.pt"}


def test_an_epoch_checkpoint_replaces_it_as_before(tmp_path):
    """With --save-interval 2 only the second epoch has an epoch checkpoint."""
    flags = EVERY_SECOND | {"no_epoch_checkpoints": False, "save_interval": 2}
    assert files_of(tmp_path, [4, 8], **flags) == {"checkpoint_1_4.pt", "checkpoint2.pt"}
    every_epoch = EVERY_SECOND | {"no_epoch_checkpoints": False}
    assert files_of(tmp_path / "other", [4, 8], **every_epoch) == {"checkpoint1.pt", "checkpoint2.pt"}


def test_old_checkpoints_are_deleted_at_the_end_of_an_epoch(tmp_path):
    assert files_of(tmp_path, [2, 4, 6, 8], keep_interval_updates=1, **EVERY_SECOND) == {"checkpoint_2_8.pt"}


def test_a_run_resumes_from_it_in_the_next_epoch(toy_data, tmp_path):
    """160 sentences in batches of 40: update 4 ends the first epoch."""
    flags = "--encoder-layers 1 --decoder-layers 1 --batch-size 40 --no-epoch-checkpoints --disable-validation".split()
    saved = [*flags, "--save-interval-updates", 4, "--max-update", 8, "--save-dir", tmp_path]
    whole = train(toy_data, *saved)
    assert {path.name for path in tmp_path.iterdir()} >= {"checkpoint_1_4.pt", "checkpoint_2_8.pt"}
    rest = train(toy_data, *flags, "--max-update", 8, "--no-save", "--restore-file", tmp_path / "checkpoint_1_4.pt")
    assert rest.losses == whole.losses[4:]


def scores_in(files):
    """Return the sorted scores in file names. fairseq appends one digit to the score with three decimals."""
    return sorted(float(name.rpartition("_")[2][: -len("0.pt")]) for name in files)


BEST = {"no_epoch_checkpoints": True, "no_last_checkpoints": True, "best_checkpoint_metric": "bleu"}


def best_of(folder, scores, keep, maximize, plain=False):
    flags = {**BEST, "keep_best_checkpoints": keep, "maximize_best_checkpoint_metric": maximize}
    return scores_in(files_of(folder, range(1, len(scores) + 1), scores, plain, **flags) - {"checkpoint_best.pt"})


@pytest.mark.parametrize(
    "scores, maximize, kept, kept_by_fairseq",
    [
        ([2, 6, 4], True, [4, 6], [4, 6]),
        ([6, 4, 2], True, [4, 6], [6]),
        ([3, 4, 5], False, [3, 4], [3]),
        ([-1, -3, -2], False, [-3, -2], [-3, -1]),
        ([3.25], True, [3.25], [3.25]),
    ],
)
def test_the_two_best_are_kept(tmp_path, scores, maximize, kept, kept_by_fairseq):
    assert best_of(tmp_path / "repaired", scores, 2, maximize) == kept
    assert best_of(tmp_path / "plain", scores, 2, maximize, plain=True) == kept_by_fairseq


@pytest.mark.parametrize("maximize", [True, False])
def test_random_scores(tmp_path, maximize):
    draw = random.Random(4)
    for case in range(20):
        scores, keep = draw.sample(range(-20, 20), draw.randint(1, 12)), draw.randint(1, 6)
        assert best_of(tmp_path / f"{case}", scores, keep, maximize) == sorted(sorted(scores, reverse=maximize)[:keep])


def test_a_score_that_is_not_a_number_is_not_kept(tmp_path):
    assert best_of(tmp_path, [float("nan"), 2.0], 2, False) == [2.0]
