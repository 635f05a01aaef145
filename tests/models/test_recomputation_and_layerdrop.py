"""``--checkpoint-activations`` and LayerDrop work with reservoirs as with ordinary layers."""

import pytest
import torch
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from torch.testing import assert_close

from tests.support.building import build, build_lm, build_roberta, build_supermask, loss, pad, sentences
from tests.support.letters import RESERVOIRS, TRAINED, WITH_EVERY_KIND, WITH_RESERVOIRS

BATCH = pad(sentences(5, 3)), pad(sentences(4, 4, seed=2))


def compare(build_with, loss_of):
    """Assert that a model has the same loss and gradients with ``checkpoint_activations``, up to rounding."""
    results = []
    for flags in ({}, {"checkpoint_activations": True}, {"checkpoint_activations": True, "offload_activations": True}):
        model = build_with(**flags)
        value = loss_of(model)
        value.backward()
        results.append((value, {name: p.grad for name, p in model.named_parameters() if p.grad is not None}))
    (value, gradients), *recomputed = results
    assert gradients
    for recomputed_value, found in recomputed:
        # A recomputed layer first runs without gradients. torch has other kernels for this, and on some processors the last bit
        # differs.
        assert_close(recomputed_value, value, rtol=1e-6, atol=0)
        assert found.keys() == gradients.keys()
        for name, gradient in gradients.items():
            assert (found[name] - gradient).abs().max() < 1e-5 * (1 + gradient.abs().max()), name


@pytest.mark.parametrize(
    "encoder, decoder, freeze",
    [
        (*WITH_RESERVOIRS.values(), None),
        (*WITH_EVERY_KIND.values(), None),
        (*map("".join, TRAINED.values()), None),
        ("LTL", "LL", "emb"),
        ("TLF", "FLT", "emb"),
        ("CLG", "TLC", "emb"),
        ("LL", "LL", "encoder,emb"),
        ("TL", "FL", "emb,ln"),
    ],
)
def test_recomputed_layers_have_the_same_loss_and_gradients(encoder, decoder, freeze):
    compare(lambda **flags: build(encoder, decoder, freeze=freeze, **flags), lambda model: loss(model, *BATCH))


@pytest.mark.parametrize("stack", ["transformer", "language model", "RoBERTa"])
@pytest.mark.parametrize("norm_first", [True, False], ids=["pre-norm", "post-norm"])
@pytest.mark.parametrize(
    "how",
    [{"mask_embeddings": "frozen"}, {"mask_embeddings": "trained", "freeze": "emb"}],
    ids=["frozen", "freeze emb"],
)
def test_masks_above_frozen_embeddings_have_the_same_gradients(stack, norm_first, how):
    # Excludes LayerNorm weights, because RoBERTa has a LayerNorm on its embeddings.
    how = {
        "mask_layernorm": "plain",
        **how,
        **{f"{part}_normalize_before": norm_first for part in ("encoder", "decoder")},
    }
    if stack == "transformer":
        compare(lambda **flags: build_supermask(**how, **flags), lambda model: loss(model, *BATCH))
        return
    build_one = {
        "language model": lambda **o: build_lm("supermask_one_layer_transformer_lm", **o),
        "RoBERTa": build_roberta,
    }[stack]
    compare(lambda **flags: build_one(**how, **flags), lambda model: model(BATCH[0])[0].logsumexp(-1).sum())


def test_trained_parameters_are_determined_at_every_call():
    """As with a freeze schedule: the upper of two layers above a frozen input is trained, then both, then none; run forward and again."""
    runs = []
    layers = [checkpoint_wrapper(Counted(name, runs)) for name in ("lower", "upper")]
    for trained in ([1], [0, 1], []):
        for depth, layer in enumerate(layers):
            layer.requires_grad_(depth in trained)
            layer.weight.grad = None
        runs.clear()
        x = torch.ones(1, 2)
        y = layers[1](layers[0](x))
        assert y.requires_grad == bool(trained) and not x.requires_grad
        if trained:
            y.sum().backward()
        assert [depth for depth, layer in enumerate(layers) if layer.weight.grad is not None] == trained
        assert runs == ["lower", "upper", *[layers[depth].name for depth in reversed(trained)]]


class Counted(torch.nn.Linear):
    """Records its runs in ``runs``."""

    def __init__(self, name, runs):
        super().__init__(2, 2)
        self.name, self.runs = name, runs

    def forward(self, x):
        self.runs.append(self.name)
        return super().forward(x)


def test_layerdrop_skips_layers_in_training_only():
    model = build(
        *("".join(letters) * 2 for letters in RESERVOIRS.values()), encoder_layerdrop=0.5, decoder_layerdrop=0.5
    )
    values = {loss(model, *BATCH).item() for _ in range(5)}
    assert len(values) > 1
    loss(model, *BATCH).backward()
    model.eval()
    assert loss(model, *BATCH).equal(loss(model, *BATCH))
