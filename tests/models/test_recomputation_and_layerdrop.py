"""``--checkpoint-activations`` and LayerDrop work with reservoirs as with ordinary layers."""

import pytest

from tests.building import build, loss, pad, sentences

BATCH = pad(sentences(5, 3)), pad(sentences(4, 4, seed=2))


@pytest.mark.parametrize(
    "encoder, decoder, freeze",
    [("LTFGC", "LTFC", None), ("MSs", "Ss", None), ("fgc", "fc", None), ("LTL", "LL", "emb"), ("TLF", "FLT", "emb"), ("CLG", "TLC", "emb")],
)
def test_recomputed_layers_have_the_same_loss_and_gradients(encoder, decoder, freeze):
    results = []
    for checkpoint in (False, True):
        model = build(encoder, decoder, freeze=freeze, checkpoint_activations=checkpoint)
        value = loss(model, *BATCH)
        value.backward()
        results.append((value, {name: p.grad for name, p in model.named_parameters() if p.grad is not None}))
    (value, gradients), (recomputed_value, recomputed) = results
    assert recomputed_value.equal(value)
    assert recomputed.keys() == gradients.keys()
    for name, gradient in gradients.items():
        assert (recomputed[name] - gradient).abs().max() < 1e-5, name


def test_layerdrop_skips_layers_in_training_only():
    model = build("TFGCTFGC", "TFCTFC", encoder_layerdrop=0.5, decoder_layerdrop=0.5)
    values = {loss(model, *BATCH).item() for _ in range(5)}
    assert len(values) > 1
    loss(model, *BATCH).backward()
    model.eval()
    assert loss(model, *BATCH).equal(loss(model, *BATCH))
