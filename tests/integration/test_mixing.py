"""M, S and s with fairseq's commands: short trainings in every number format, resuming, export, beam search."""

import pytest
import torch

from fairseq_reservoir import cli
from fairseq_reservoir.checkpoint import load_translator, packed_file, read_state_dict
from tests.support.commands import error_of, load, train

MODEL = "--reservoir-encoder MSs --reservoir-decoder Ss".split()
FORMATS = {
    "fp32": [],
    "fp16": ["--fp16", "--fp16-no-flatten-grads"],
    "memory-efficient-fp16": ["--memory-efficient-fp16"],
    "bf16": ["--bf16"],
    "amp": ["--amp"],
}
FROZEN = {"encoder.layers.1.self_attn.mix", "decoder.layers.0.self_attn.mix"}


USUAL = ("amp", "memory-efficient-fp16")


@pytest.mark.parametrize(
    "number_format", [form if form in USUAL else pytest.param(form, marks=pytest.mark.slow) for form in FORMATS]
)
def test_s_keeps_its_mixing_and_everything_else_moves(toy_data, number_format):
    pressure = ["--weight-decay", 0.01, "--clip-norm", 0.1, "--lr", 0.003]
    run = train(
        toy_data, *MODEL, *pressure, *FORMATS[number_format], "--max-update", 40, "--no-save", "--disable-validation"
    )
    assert run.trainer.get_num_updates() >= 30  # half precision may skip the first few updates
    names = [name for name, _ in run.model.named_parameters()]
    still = {name for name in names if run.weights[name].equal(run.initial[name].to(run.weights[name].dtype))}
    assert FROZEN <= still
    if number_format in ("fp32", "amp"):  # a small step may round to 0 in half precision
        assert still - {name for name in names if name.endswith("k_proj.bias")} == FROZEN
    assert {
        "encoder.layers.2.self_attn.mix",
        "decoder.layers.1.self_attn.mix",
        "encoder.layers.0.ffn.fc1.weight",
    }.isdisjoint(still)
    assert all(weight.isfinite().all() for weight in run.weights.values())
    assert sum(run.losses[-10:]) < sum(run.losses[:10])


@pytest.fixture(scope="module")
def trained(toy_data, tmp_path_factory):
    """Folder with checkpoints of updates 4 and 10."""
    folder = tmp_path_factory.mktemp("mixing")
    flags = ["--max-update", 10, "--save-interval-updates", 4, "--no-epoch-checkpoints"]
    train(toy_data, *MODEL, *flags, "--save-dir", folder)
    return folder


def test_a_resumed_run_equals_an_uninterrupted_one(toy_data, trained, tmp_path):
    flags = [*MODEL, "--max-update", 10, "--no-epoch-checkpoints", "--save-dir", tmp_path]
    run = train(toy_data, *flags, "--restore-file", trained / "checkpoint_1_4.pt")
    resumed, whole = load(tmp_path)["model"], load(trained)["model"]
    assert len(run.losses) == 6 and all(resumed[name].equal(whole[name]) for name in whole)


def test_resuming_with_other_random_mixing_is_refused(toy_data, trained):
    flags = [*MODEL, "--max-update", 20, "--restore-file", trained / "checkpoint_last.pt", "--no-save"]
    message, status = error_of(toy_data, *flags, "--reservoir-seed", 9)
    assert status and "--reservoir-seed" in message
    message, status = error_of(toy_data, "--reservoir-encoder", "MsS", *flags[2:])
    assert status and "--reservoir-encoder" in message


def test_an_export_draws_the_random_mixing_again(trained, tmp_path):
    out = tmp_path / "model.safetensors"
    cli.main(["export", str(trained / "checkpoint_last.pt"), str(out)])
    body, tensors = packed_file.read(out)
    assert body["random"].keys() == FROZEN and not FROZEN & tensors.keys()
    state, expected = read_state_dict(out), load(trained)["model"]
    assert state.keys() == expected.keys() and all(state[name].equal(expected[name]) for name in expected)


@torch.no_grad()
def test_a_sentence_translates_alike_alone_and_in_a_batch(toy_data, trained):
    translator = load_translator(str(trained / "checkpoint_last.pt"), str(toy_data))
    words = ["a b c d e f", "h", "c c a", "g f e d"]
    assert translator.translate(words, beam=5) == [translator.translate(word, beam=5) for word in words]


def test_generate_and_validate(toy_data, trained, run_fairseq, capsys):
    path = ["--path", trained / "checkpoint_last.pt", "--cpu"]
    run_fairseq("generate", toy_data, *path, "--beam", 5, "--batch-size", 4)
    assert capsys.readouterr().out.count("\nH-") == 8
    run_fairseq("validate", toy_data, *path, "--task", "translation", "--batch-size", 4)
