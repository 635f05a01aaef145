"""F computes x + W2 relu(W1 LN(x) + b1) + b2 for each token."""

import pytest
import torch
from torch.autograd.functional import jacobian
from torch.nn import functional

from fairseq_reservoir.layers import build_slot
from tests.support.building import build, slot_config


def test_by_hand():
    layer = build_slot("F", "encoder", slot_config(embed_dim=2, ffn_dim=2))
    with torch.no_grad():
        layer.ffn.fc1.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
        layer.ffn.fc1.bias.copy_(torch.tensor([0.0, 3.0]))
        layer.ffn.fc2.weight.copy_(torch.tensor([[1.0, 0.0], [10.0, 1.0]]))
        layer.ffn.fc2.bias.copy_(torch.tensor([0.5, 0.0]))
    # LN(2, 4) = (-1, 1); plus b1: (-1, 4); relu: (0, 4); W2: (0, 4) + (0.5, 0); with x: (2.5, 8)
    y = layer(torch.tensor([[[2.0, 4.0]]]))
    assert torch.allclose(y, torch.tensor([[[2.5, 8.0]]]), atol=1e-4)


@pytest.mark.parametrize("norm", ["paper", "model"])
@pytest.mark.parametrize("model_norm_first", [False, True])
def test_in_a_model(norm, model_norm_first):
    """With --reservoir-norm paper the LayerNorm comes first, even in a post-norm model; with model it follows the model."""
    layer = build("LF", reservoir_norm=norm, encoder_normalize_before=model_norm_first).encoder.layers[1].double()
    ffn = layer.ffn
    x = torch.randn(3, 2, 8, dtype=torch.float64)

    def f(z):
        return (z @ ffn.fc1.weight.T + ffn.fc1.bias).clamp(min=0) @ ffn.fc2.weight.T + ffn.fc2.bias

    def layer_norm(z):
        return functional.layer_norm(z, (8,))  # weight 1, bias 0

    expected = x + f(layer_norm(x)) if norm == "paper" or model_norm_first else layer_norm(x + f(x))
    assert (layer(x) - expected).abs().max() < 1e-12


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_no_word_sees_another(stack):
    layer = build_slot("F", stack, slot_config())

    def run(x):
        y = layer(x)
        return y[0] if stack == "decoder" else y

    blocks = jacobian(run, torch.randn(4, 2, 8)).abs().amax(dim=(2, 5))  # (time, sentence, time, sentence)
    seen = blocks.reshape(8, 8) > 0
    assert seen.equal(torch.eye(8, dtype=torch.bool))


def test_activation_follows_the_model():
    layer = build_slot("F", "encoder", slot_config(activation_fn="tanh")).double()
    x = torch.randn(3, 1, 8, dtype=torch.float64)
    hidden = layer.ffn.fc1(layer.ffn.layer_norm(x)).tanh()
    assert (layer(x) - x - layer.ffn.fc2(hidden)).abs().max() < 1e-12
