"""``--frozen-dtype bf16``: half the memory of frozen matrices; training, resuming and generation work as before."""

import pytest
import torch

from fairseq_reservoir.checkpoint.ledger import ledger
from tests.support.building import build, logits, pad, sentences, shift
from tests.support.commands import error_of, load, train

SOURCE, TARGET = pad(sentences(5, 3)), pad(sentences(4, 6, seed=2))
PLAN = "--reservoir-encoder LTF --decoder-layers 1 --disable-validation".split()


def test_only_matrices_of_wholly_frozen_layers_are_rounded():
    plain, ours = (build("LTFS", "LT", frozen_dtype=dtype) for dtype in ("fp32", "bf16"))
    rounded = {name for name, p in ours.named_parameters() if p.dtype == torch.bfloat16}
    frozen = [f"encoder.layers.{i}." for i in (1, 2)] + ["decoder.layers.1."]
    assert rounded == {n for n, p in plain.named_parameters() if p.dim() > 1 and any(n.startswith(f) for f in frozen)}
    for name, parameter in plain.named_parameters():
        expected = parameter.to(torch.bfloat16) if name in rounded else parameter
        assert dict(ours.named_parameters())[name].equal(expected)


def test_outputs_and_gradients_are_close():
    plain, ours = (build("LTFGC", "LT", frozen_dtype=dtype) for dtype in ("fp32", "bf16"))
    outputs = [logits(model, SOURCE, shift(TARGET)) for model in (plain, ours)]
    assert outputs[1].dtype == torch.float32 and not outputs[0].equal(outputs[1])
    torch.testing.assert_close(outputs[0], outputs[1], rtol=0, atol=0.05)
    grads = []
    for model, output in zip((plain, ours), outputs):
        output.square().sum().backward()
        grads.append(model.encoder.layers[0].fc1.weight.grad)
    assert grads[1].dtype == torch.float32 and torch.cosine_similarity(*(g.flatten() for g in grads), 0) > 0.99


def test_frozen_tensors_stay_and_a_resume_is_bit_exact(toy_data, tmp_path):
    flags = [*PLAN, "--frozen-dtype", "bf16", "--dropout", 0.1]
    flags += ["--max-update", 8]
    whole = train(toy_data, *flags, "--save-interval-updates", 5, "--save-dir", tmp_path / "whole")
    frozen = [entry.name for entry in whole.model.slot_table.entries if not entry.trained]
    assert all(whole.weights[name].equal(whole.initial[name]) for name in frozen)
    begun = ["--restore-file", tmp_path / "whole" / "checkpoint_1_5.pt"]
    rest = train(toy_data, *flags, *begun, "--save-dir", tmp_path / "part")
    assert rest.losses == whole.losses[5:]
    one, other = load(tmp_path / "whole")["model"], load(tmp_path / "part")["model"]
    assert all(other[name].equal(tensor) for name, tensor in one.items())


def test_the_ledger_counts_float32_in_files(toy_data, tmp_path):
    run = train(toy_data, *PLAN, "--frozen-dtype", "bf16", "--max-update", 1, "--save-dir", tmp_path)
    found, stored = ledger(run.model), load(tmp_path)["model"]
    in_file = sum(tensor.numel() * tensor.element_size() for tensor in stored.values())
    assert found.checkpoint_bytes - found.optimizer_bytes == in_file > found.weight_bytes


@pytest.mark.parametrize(
    "engine", [["--bf16"], ["--checkpoint-activations"], ["--backskip", "synthetic", "--backskip-anneal", 0]], ids=str
)
def test_it_goes_with_other_engines(toy_data, engine):
    run = train(toy_data, *PLAN, "--frozen-dtype", "bf16", *engine, "--max-update", 3, "--no-save")
    assert len(run.losses) == 3 and all(loss > 0 for loss in run.losses)


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--frozen-dtype", "fp8"], "--frozen-dtype 'fp8': choose from fp32, bf16"),
        (
            ["--reservoir-encoder", "LL", "--frozen-dtype", "bf16"],
            "--frozen-dtype bf16: has no effect, because no layer is wholly frozen",
        ),
        (
            ["--reservoir-encoder", "LF", "--frozen-dtype", "bf16", "--fp16"],
            "--frozen-dtype bf16: not supported with --fp16, which sets the type of the whole model",
        ),
    ],
)
def test_bad_input(toy_data, tmp_path, flags, message):
    line, status = error_of(toy_data, *flags, "--max-update", 1, "--save-dir", tmp_path / "out")
    assert status != 0 and message in line and line.count("\n") == 1
