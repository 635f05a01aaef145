"""Activations stored for the backward pass: a frozen layer stores none that only a weight gradient needs."""

import pytest
import torch

from tests.support.building import build


def kept_bytes(letter):
    """Bytes of activations that the bottom layer of an encoder stores for 3 sentences of 7 tokens."""
    model = build(letter, dropout=0.1, activation_dropout=0.1).train()
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept = {}

    def keep(tensor):
        kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    x = torch.randn(3, 7, 8, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model.encoder.layers[0](x, encoder_padding_mask=None)
    return sum(tensor.untyped_storage().nbytes() for place, tensor in kept.items() if place not in weights)


@pytest.mark.parametrize(
    "frozen, trained, channels",
    [
        ("F", "f", 8 + 12),  # the inputs of fc1 and, after dropout, fc2
        (
            "T",
            "L",
            8 + 8 + 12,
        ),  # also the input of queries, keys and values; attention itself stores the input of the output projection
    ],
)
def test_a_frozen_layer_keeps_no_input_of_its_matrices(frozen, trained, channels):
    assert kept_bytes(trained) - kept_bytes(frozen) == 3 * 7 * channels * 4
