"""A run that is stopped resumes bit for bit on the same device."""

import pytest

from tests.gpu.test_frozen_tensors import MODELS
from tests.integration.test_resume import assert_same_bits
from tests.support.commands import load, train

# Without --fp16 and --bf16, because fairseq saves half-precision weights and not the float32 copies that it trains.
PRECISIONS = {
    "fp32": [],
    "amp": ["--amp"],
    "fp16, less memory": ["--memory-efficient-fp16"],
    "bf16, less memory": ["--memory-efficient-bf16"],
}


def cases():
    """All pairs; all but one are slow tests."""
    for precision in PRECISIONS:
        for model in MODELS:
            usual = (precision, model) == ("fp16, less memory", "masks")
            yield pytest.param(precision, model, marks=[] if usual else [pytest.mark.slow])


@pytest.mark.parametrize("precision, model", cases())
def test_a_resumed_run_is_the_whole_one(device, begin, same_sums, toy_data, tmp_path, model, precision):
    if (device, precision) == ("cpu", "amp"):
        pytest.skip("fairseq's --amp rounds nothing and scales nothing on a CPU")
    flags = [*MODELS[model], *PRECISIONS[precision], "--disable-validation", "--no-epoch-checkpoints"]
    whole = train(toy_data, *flags, "--max-update", 4, "--save-dir", tmp_path / "whole", begin=begin)
    train(toy_data, *flags, "--max-update", 2, "--save-dir", tmp_path / "part", begin=begin)
    rest = train(toy_data, *flags, "--max-update", 4, "--save-dir", tmp_path / "part", begin=begin)
    assert 2 <= len(rest.losses) < len(whole.losses)
    assert rest.losses == whole.losses[-len(rest.losses) :]
    ours, wholes = load(tmp_path / "part"), load(tmp_path / "whole")
    assert_same_bits(ours["model"], wholes["model"])
    assert_same_bits(ours["last_optimizer_state"], wholes["last_optimizer_state"])
