"""A resumed run equals an uninterrupted one. Resuming with another model is refused with the flag."""

import math

import pytest
import torch

from fairseq_reservoir.errors import InputError
from tests.support.building import build
from tests.support.commands import error_of, load, train

# 160 sentences in batches of 16: 10 updates in an epoch. Dropout is on.
RUN = "--reservoir-encoder LFT --reservoir-decoder CL --batch-size 16 --dropout 0.3 --save-interval-updates 4".split()


@pytest.fixture(scope="module")
def whole_run(toy_data, tmp_path_factory):
    """20 updates in one run: the run, and its folder with checkpoints of updates 4, 8, 10, 12, 16 and 20."""
    folder = tmp_path_factory.mktemp("whole")
    return train(toy_data, *RUN, "--max-epoch", 2, "--save-dir", folder), folder


@pytest.mark.parametrize("checkpoint, updates", [("checkpoint1.pt", 10), ("checkpoint_1_4.pt", 4)])
def test_resumes_bit_for_bit(toy_data, whole_run, tmp_path, checkpoint, updates):
    whole, folder = whole_run
    resumed = train(toy_data, *RUN, "--max-epoch", 2, "--restore-file", folder / checkpoint, "--save-dir", tmp_path)
    assert len(whole.losses) == 20 and resumed.losses == whole.losses[updates:]
    ours, wholes = load(tmp_path), load(folder)
    assert_same_bits(ours["model"], wholes["model"])
    assert_same_bits(ours["last_optimizer_state"], wholes["last_optimizer_state"])
    best = [state["extra_state"]["best"] for state in (ours, wholes)]
    assert best[0] == best[1] and math.isfinite(best[0])


def test_a_repeated_command_resumes_from_the_last_checkpoint(toy_data, whole_run, tmp_path):
    whole, folder = whole_run
    train(toy_data, *RUN, "--max-update", 13, "--save-dir", tmp_path)
    resumed = train(toy_data, *RUN, "--max-epoch", 2, "--save-dir", tmp_path)
    assert resumed.losses == whole.losses[13:]
    assert_same_bits(load(tmp_path)["model"], load(folder)["model"])


OTHERS = {
    "encoder plan": (["--reservoir-encoder", "FLT"], "--reservoir-encoder FLT: the checkpoint was trained with LFT"),
    "another letter": (["--reservoir-encoder", "LGT"], "--reservoir-encoder LGT: the checkpoint was trained with LFT"),
    "another depth": (["--reservoir-encoder", "LFTL"], "--reservoir-encoder LFTL: the checkpoint was trained with LFT"),
    "trained instead": (["--reservoir-encoder", "LfT"], "--reservoir-encoder LfT: the checkpoint was trained with LFT"),
    "decoder plan": (["--reservoir-decoder", "LL"], "--reservoir-decoder LL: the checkpoint was trained with CL"),
    "seed": (["--seed", 4], "--reservoir-seed 4 (default: --seed): the checkpoint was trained with 3"),
    "reservoir seed": (
        ["--reservoir-seed", 4],
        "--reservoir-seed 4 (default: --seed): the checkpoint was trained with 3",
    ),
    "norm": (
        ["--reservoir-norm", "model"],
        "--reservoir-norm model: the checkpoint was trained without this flag; remove it, or start a new training",
    ),
    "kernel sizes": (
        ["--reservoir-kernel-sizes", "5"],
        "--reservoir-kernel-sizes 5: the checkpoint was trained without this flag; remove it",
    ),
    "LayerNorms": (
        ["--reservoir-train-layernorm"],
        "--reservoir-train-layernorm: the checkpoint was trained without this flag; remove it, add --reset-optimizer",
    ),
    "freeze": (
        ["--freeze", "emb"],
        "--freeze emb: the checkpoint was trained without this flag; remove it, add --reset-optimizer",
    ),
    "freeze-except": (
        ["--freeze-except", "ln"],
        "--freeze-except ln: the checkpoint was trained without this flag; remove it, add --reset-optimizer",
    ),
}


# One for each message. All flags are compared by one function; each of the others has a case in test_another_model_is_not_loaded.
USUAL = ("encoder plan", "seed", "norm", "LayerNorms", "freeze", "freeze-except")


@pytest.mark.parametrize(
    "change", [change if change in USUAL else pytest.param(change, marks=pytest.mark.slow) for change in OTHERS]
)
def test_another_model_is_refused(toy_data, whole_run, tmp_path, change):
    flags, message = OTHERS[change]
    line, status = error_of(
        toy_data, *RUN, *flags, "--restore-file", whole_run[1] / "checkpoint1.pt", "--save-dir", tmp_path
    )
    assert status != 0 and message in line and line.count("\n") == 1


@pytest.mark.parametrize(
    "encoder, decoder, options, message",
    [
        ("LFT", "LL", {}, "--reservoir-decoder LL: the checkpoint was trained with CL"),
        ("LGT", "CL", {}, "--reservoir-encoder LGT: the checkpoint was trained with LFT"),
        ("LFTL", "CL", {}, "--reservoir-encoder LFTL: the checkpoint was trained with LFT"),
        ("LfT", "CL", {}, "--reservoir-encoder LfT: the checkpoint was trained with LFT"),
        ("LFT", "CL", {"reservoir_seed": 4}, "--reservoir-seed 4 .* the checkpoint was trained with"),
        (
            "LFT",
            "CL",
            {"reservoir_kernel_sizes": "5"},
            "--reservoir-kernel-sizes 5: the checkpoint was trained without this flag",
        ),
    ],
)
def test_another_model_is_not_loaded(encoder, decoder, options, message):
    state = build("LFT", "CL").state_dict()
    with pytest.raises(InputError, match=f"^{message}"):
        build(encoder, decoder, **options).load_state_dict(state)


def test_with_reset_optimizer_other_components_may_be_frozen(toy_data, whole_run, tmp_path):
    flags = ["--freeze", "emb", "--reset-optimizer", "--restore-file", whole_run[1] / "checkpoint1.pt"]
    run = train(toy_data, *RUN, *flags, "--max-update", 14, "--save-dir", tmp_path)
    assert run.trainer.get_num_updates() == 14
    before, after = load(whole_run[1], "checkpoint1.pt")["model"], run.weights
    assert torch.equal(after["encoder.embed_tokens.weight"], before["encoder.embed_tokens.weight"])
    assert not torch.equal(after["encoder.layers.0.fc1.weight"], before["encoder.layers.0.fc1.weight"])


def assert_same_bits(ours, others):
    """Assert equality of nested dicts and lists, with tensors compared bit by bit."""
    if isinstance(ours, torch.Tensor):
        assert ours.dtype == others.dtype and torch.equal(ours, others)
    elif isinstance(ours, dict):
        assert ours.keys() == others.keys()
        for key in ours:
            assert_same_bits(ours[key], others[key])
    elif isinstance(ours, (list, tuple)):
        assert len(ours) == len(others)
        for one, other in zip(ours, others):
            assert_same_bits(one, other)
    else:
        assert ours == others
