"""Updates in which LayerDrop leaves out all that is trained: they move nothing, where torch would end the training."""

import pytest
import torch

from tests.support.commands import train

SMALL = "--no-save --disable-validation --max-epoch 2 --batch-size 16".split()
# Nothing outside the layers is trained: the embeddings are frozen, and there is no norm after the last layer.
LAYERS = "--reservoir-encoder LL --decoder-layers 2 --share-decoder-input-output-embed --freeze emb".split()
SKIP = ["--optimizer", "freeze_skip"]
RUNS = {
    "a frozen decoder": ["--encoder-layerdrop", 0.8, "--freeze", "emb,decoder"],
    # Without any layer the decoder does not read the encoder.
    "no decoder": ["--decoder-layerdrop", 0.8],
    "rotation": ["--encoder-layerdrop", 0.8, *SKIP, "--freeze-rotate", "1:2"],
    "a schedule": ["--encoder-layerdrop", 0.8, *SKIP, "--freeze-schedule", "3:decoder"],
    "embeddings now and then": [
        "--encoder-layerdrop",
        0.8,
        "--freeze",
        "decoder",
        *SKIP,
        "--freeze-update-every",
        "emb:4",
    ],
}
LESS_PRECISE = {"bf16": ["--bf16"], "fp16": ["--memory-efficient-fp16"]}


@pytest.mark.parametrize("case", [*RUNS, *(pytest.param(name, marks=pytest.mark.slow) for name in LESS_PRECISE)])
def test_the_training_goes_on(toy_data, case):
    flags = RUNS.get(case) or [*RUNS["a frozen decoder"], *LESS_PRECISE[case]]
    run = train(toy_data, *LAYERS, *SMALL, *flags)
    assert len(run.losses) == 20


def test_nothing_moves(toy_data, caplog):
    """With every layer left out in every update, which 1 - 1e-9 makes all but certain, no weight changes; without LayerDrop some do."""
    flags = [*LAYERS, *SMALL, "--freeze", "emb,decoder", "--encoder-layerdrop"]
    said = []
    with caplog.at_level("WARNING"):
        run = train(toy_data, *flags, 1 - 1e-9)
        said.append(caplog.text.count("depends on no trained parameter"))
        caplog.clear()
        trained = train(toy_data, *flags, 0.0)
        said.append(caplog.text.count("depends on no trained parameter"))
    assert said == [1, 0]
    assert len(run.losses) == len(trained.losses) == 20
    assert all(run.weights[name].equal(tensor) for name, tensor in run.initial.items())
    changed = [name for name, tensor in trained.initial.items() if not torch.equal(trained.weights[name], tensor)]
    assert len(changed) > 20 and all(name.startswith("encoder.layers.") for name in changed)


def test_gradients_of_other_processes_are_taken(toy_data):
    """As legacy_ddp leaves them in a process whose own loss has none: before, with --bf16, this process alone did not move."""
    trainer = train(
        toy_data, *LAYERS, "--no-save", "--disable-validation", "--max-update", 1, "--optimizer", "sgd", "--bf16"
    ).trainer
    optimizer, (weight, *_) = trainer.optimizer, trainer.optimizer.fp16_params
    optimizer.zero_grad()
    optimizer.backward(torch.zeros(()))
    before, weight.grad = weight.detach().clone(), torch.ones_like(weight)
    optimizer.step()
    assert not weight.eq(before).any()


def test_with_amp(toy_data, monkeypatch):
    """torch's scaler ends a training of which it sees no gradient."""
    monkeypatch.setattr(
        torch.cuda.amp, "GradScaler", lambda init_scale: torch.amp.GradScaler("cpu", init_scale=init_scale)
    )
    run = train(toy_data, *LAYERS, *SMALL, *RUNS["a frozen decoder"], "--amp")
    assert len(run.losses) == 20
    plain = train(toy_data, *LAYERS, *SMALL, *RUNS["a frozen decoder"])
    assert run.losses == plain.losses
