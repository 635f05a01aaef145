"""Dictionaries that are not there are told in one line; what else goes wrong in a task of a user's own is left as it is."""

import pytest
from fairseq.tasks import TASK_REGISTRY, LegacyFairseqTask
from omegaconf import OmegaConf

from fairseq_reservoir.checkpoint.dictionaries import task_of_config
from fairseq_reservoir.errors import InputError


class OwnTask(LegacyFairseqTask):
    error = None

    @classmethod
    def setup_task(cls, args, **kwargs):
        raise cls.error


@pytest.mark.parametrize(
    "error, is_said",
    [
        (FileNotFoundError("dict.en.txt"), True),
        (Exception("Could not infer language pair"), True),  # fairseq's own
        (ValueError("Incorrect dictionary format"), True),
        (RuntimeError("Duplicate word found"), True),
        (ModuleNotFoundError("No module named 'nowhere'"), False),
        (TypeError("unsupported operand"), False),
    ],
)
def test_what_is_put_down_to_dictionaries(monkeypatch, error, is_said):
    monkeypatch.setitem(TASK_REGISTRY, "own", OwnTask)
    monkeypatch.setattr(OwnTask, "error", error)
    config = OmegaConf.create({"task": {"task": "own", "data": "there"}})
    with pytest.raises(InputError if is_said else type(error)) as raised:
        task_of_config(config, None)
    message = str(raised.value)
    assert message == (
        f"--data there: does not hold the dictionaries of the checkpoint ({error})" if is_said else str(error)
    )
