"""Updates in which LayerDrop drops every trained layer. They change no weight, but torch alone would raise an error."""

import pytest
import torch

from tests.support.commands import train

SMALL = "--no-save --disable-validation --max-epoch 1 --batch-size 16".split()
# Only layers are trained: the embeddings are frozen, and no norm follows the last layer.
LAYERS = "--reservoir-encoder LL --decoder-layers 2 --share-decoder-input-output-embed --freeze emb".split()
SKIP = ["--optimizer", "freeze_skip"]
RUNS = {
    "a frozen decoder": ["--encoder-layerdrop", 0.8, "--freeze", "emb,decoder"],
    # Without any layer the decoder does not read the encoder.
    "no decoder": ["--decoder-layerdrop", 0.8],
    "rotation": ["--encoder-layerdrop", 0.8, *SKIP, "--freeze-rotate", "1:2"],
    "a schedule": ["--encoder-layerdrop", 0.8, *SKIP, "--freeze-schedule", "3:decoder"],
    "embeddings every 4 updates": [
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
def test_the_training_continues(toy_data, case):
    flags = RUNS.get(case) or [*RUNS["a frozen decoder"], *LESS_PRECISE[case]]
    run = train(toy_data, *LAYERS, *SMALL, *flags)
    assert len(run.losses) == 10


def test_no_weight_changes(toy_data, caplog):
    """LayerDrop of 1 - 1e-9 almost certainly drops every layer in every update. Without LayerDrop some weights change."""
    flags = [*LAYERS, *SMALL, "--freeze", "emb,decoder", "--encoder-layerdrop"]
    warnings = []
    with caplog.at_level("WARNING"):
        run = train(toy_data, *flags, 1 - 1e-9)
        warnings.append(caplog.text.count("does not depend on any trained parameter"))
        caplog.clear()
        trained = train(toy_data, *flags, 0.0)
        warnings.append(caplog.text.count("does not depend on any trained parameter"))
    assert warnings == [1, 0]
    assert len(run.losses) == len(trained.losses) == 10
    assert all(run.weights[name].equal(tensor) for name, tensor in run.initial.items())
    changed = [name for name, tensor in trained.initial.items() if not torch.equal(trained.weights[name], tensor)]
    assert len(changed) > 20 and all(name.startswith("encoder.layers.") for name in changed)


def test_gradients_of_other_ranks_are_applied(toy_data):
    """legacy_ddp adds them on a rank with a loss that has no gradient. With --bf16 that rank alone once skipped the update."""
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
    """torch's GradScaler raises an error if no parameter has a gradient."""
    monkeypatch.setattr(
        torch.cuda.amp, "GradScaler", lambda init_scale: torch.amp.GradScaler("cpu", init_scale=init_scale)
    )
    run = train(toy_data, *LAYERS, *SMALL, *RUNS["a frozen decoder"], "--amp")
    assert len(run.losses) == 10
    plain = train(toy_data, *LAYERS, *SMALL, *RUNS["a frozen decoder"])
    assert run.losses == plain.losses
