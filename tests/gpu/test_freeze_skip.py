"""``--optimizer freeze_skip`` on a device: tensors updated in each phase of each schedule, and resuming in every phase."""

import pytest

from tests.integration.test_freeze_skip import (
    MODEL,
    SCHEDULES,
    Recording,
    assert_same_training,
    expected_idle,
    optimizer,
)
from tests.support.commands import load, train

# One in each phase of the first schedule: updates 0 to 2, 3 to 5, and from 6 on.
STOPS = 2, 4, 7


@pytest.mark.parametrize(
    "kind", [pytest.param(k, marks=[] if k == "rotate" else [pytest.mark.slow]) for k in SCHEDULES]
)
def test_every_phase(begin, same_sums, toy_data, tmp_path, kind):
    flags = [*MODEL, *optimizer("freeze_skip"), *SCHEDULES[kind], "--disable-validation", "--no-epoch-checkpoints"]

    def run(name, updates):
        return train(toy_data, *flags, "--max-update", updates, "--save-dir", tmp_path / name, begin=begin)

    with Recording() as seen:
        whole = run("whole", 8)
    names = {name for name, _ in whole.model.named_parameters()}
    for update in range(8):
        frozen, skipped = expected_idle(kind, update, names, whole.trainer.freeze_schedule.frozen)
        assert seen.trained[update] == names - frozen - skipped
        assert seen.moved[update] <= seen.trained[update]
        weights = {name for name in seen.trained[update] if name.endswith("proj.weight") or ".fc" in name}
        assert weights <= seen.moved[update]
    for updates in STOPS:
        run("stopped", updates)
    rest = run("stopped", 8)
    assert rest.losses == whole.losses[STOPS[-1] :]
    assert_same_training(load(tmp_path / "stopped"), load(tmp_path / "whole"))
