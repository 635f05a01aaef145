"""Freezing does not change gradients of trained parameters, and reservoirs pass gradients down."""

import pytest

from tests.support.building import build, loss, pad, sentences
from tests.support.letters import LETTERS, RESERVOIRS, everywhere

PLANS = everywhere(LETTERS)


def gradients(model):
    model.zero_grad(set_to_none=True)
    loss(model, pad(sentences(5, 3)), pad(sentences(4, 4, seed=2))).backward()
    return {name: p.grad for name, p in model.named_parameters()}


def frozen_and_unfrozen(model):
    """Gradients of the trained parameters of ``model``, and the same gradients with everything trained."""
    trained = {e.name for e in model.slot_table.entries if e.trained}
    ours = gradients(model)
    unfrozen = gradients(model.requires_grad_(True))
    assert {name for name, gradient in ours.items() if gradient is not None} == trained
    assert all(gradient is not None for gradient in unfrozen.values())
    return [(name, ours[name], unfrozen[name]) for name in sorted(trained)]


@pytest.mark.parametrize("stack, letter", PLANS)
@pytest.mark.parametrize("options", [{}, {"reservoir_train_layernorm": True}, {"reservoir_norm": "model"}])
def test_gradients_are_those_of_the_unfrozen_network_bit_for_bit(stack, letter, options):
    for name, ours, unfrozen in frozen_and_unfrozen(build(**{stack: f"L{letter}L"}, **options)):
        assert ours.equal(unfrozen), name


@pytest.mark.parametrize("stack, letter", everywhere(RESERVOIRS))
@pytest.mark.parametrize("freeze", [None, "emb", "emb,encoder.q"])
def test_reservoirs_and_frozen_parts_at_the_bottom(stack, letter, freeze, exact_softmax):
    """To 1e-10 in float64, because torch multiplies transposed embeddings differently if the weight has no gradient."""
    plans = {"encoder": "TL", "decoder": "TL", stack: f"{letter}L"}
    for name, ours, unfrozen in frozen_and_unfrozen(build(**plans, freeze=freeze).double()):
        assert (ours - unfrozen).abs().max() < 1e-10, name


@pytest.mark.parametrize("stack, letter", PLANS)
def test_layers_below_a_reservoir_learn(stack, letter):
    below = {
        name: g
        for name, g in gradients(build(**{stack: f"L{letter}L"})).items()
        if name.startswith(f"{stack}.layers.0.")
    }
    for name, gradient in below.items():
        # A bias of the keys shifts all scores of a query equally, so softmax cancels it.
        if not name.endswith("k_proj.bias"):
            assert gradient.count_nonzero() > 0, name
