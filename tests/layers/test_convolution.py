"""C has the dynamic convolution of Wu et al., 2019, and a feed-forward sublayer."""

from argparse import Namespace

import pytest
import torch
from fairseq.models.lightconv import LightConvEncoderLayer

from fairseq_reservoir.layers import build_slot
from tests.support.building import build, slot_config

WIDTH, HEADS = 8, 2


def slow_convolution(sublayer, x, kernel_size, to_the_left):
    """f(x) for one sentence (time, width), with each output computed as a sum over its neighbours."""
    first, second = (x @ sublayer.linear1.weight.T + sublayer.linear1.bias).split(WIDTH, dim=1)
    v = first * second.sigmoid()
    y = torch.zeros_like(v)
    for t in range(len(v)):
        kernels = (sublayer.conv.weight_linear.weight @ v[t]).view(HEADS, kernel_size).softmax(dim=1)
        for channel in range(WIDTH):
            head = channel // (WIDTH // HEADS)
            for k in range(kernel_size):
                neighbour = t + k - to_the_left
                if 0 <= neighbour < len(v):
                    y[t, channel] += kernels[head, k] * v[neighbour, channel]
    return y @ sublayer.linear2.weight.T + sublayer.linear2.bias


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
@pytest.mark.parametrize("kernel_size", [1, 3, 7, 15])
@torch.no_grad()
def test_equals_a_slow_sum(stack, kernel_size):
    layer = build_slot("C", stack, slot_config(memory_dim=0, kernel_sizes=(kernel_size,))).double()
    x = torch.randn(9, 1, WIDTH, dtype=torch.float64)
    normed = layer.conv.layer_norm(x)[:, 0]
    # Centred in an encoder. In a decoder, the last weight belongs to the token itself.
    to_the_left = kernel_size - 1 if stack == "decoder" else kernel_size // 2
    expected = x[:, 0] + slow_convolution(layer.conv, normed, kernel_size, to_the_left)
    expected = expected + layer.ffn.fc2(layer.ffn.fc1(layer.ffn.layer_norm(expected)).relu())
    y = layer(x)
    assert ((y[0] if stack == "decoder" else y)[:, 0] - expected).abs().max() < 1e-12


@pytest.mark.parametrize("norm_first", [True, False])
@torch.no_grad()
def test_equals_fairseqs_layer(norm_first):
    layer = build_slot("C", "encoder", slot_config(norm_first=norm_first, kernel_sizes=(5,)))
    theirs = LightConvEncoderLayer(
        Namespace(
            encoder_embed_dim=WIDTH, encoder_conv_dim=WIDTH, encoder_ffn_embed_dim=12, encoder_attention_heads=HEADS,
            encoder_glu=True, encoder_conv_type="dynamic", weight_softmax=True, encoder_normalize_before=norm_first,
            weight_dropout=0.0, dropout=0.0, relu_dropout=0.0, input_dropout=0.0,
        ),
        kernel_size=5,
    )  # fmt: skip
    names = {"conv.layer_norm": "layer_norm1", "ffn.layer_norm": "layer_norm2", "ffn.fc1": "fc1", "ffn.fc2": "fc2"}
    names |= {f"conv.{name}": name for name in ("linear1", "linear2", "conv.weight_linear")}
    for ours, name in names.items():
        theirs.get_submodule(name).load_state_dict(layer.get_submodule(ours).state_dict())
    theirs.double()
    x = torch.randn(9, 3, WIDTH, dtype=torch.float64)
    mask = torch.tensor([[0] * 9, [0] * 6 + [1] * 3, [1] * 2 + [0] * 7]).bool()
    assert (layer.double()(x, mask) - theirs(x, mask)).abs().max() < 1e-12


def test_kernel_sizes_by_depth():
    layers = build("CLCCC", reservoir_kernel_sizes="3,5,7").encoder.layers
    assert [layers[i].conv.conv.kernel_size for i in (0, 2, 3, 4)] == [3, 7, 7, 7]
