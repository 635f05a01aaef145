"""G equals torch's GRU on the tokens of each sentence, for padding on any side. In an encoder it is bidirectional."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence, unpack_sequence

from fairseq_reservoir.layers import build_slot
from fairseq_reservoir.layers.frozen_dtype import use_dtype
from fairseq_reservoir.layers.gru import in_one_dtype
from tests.support.building import slot_config

LENGTHS = (4, 1, 6)


def reference(layer, stack="encoder"):
    """torch's GRU with the weights of ``layer``."""
    if stack == "decoder":
        gru = nn.GRU(8, 8).double()
        gru.load_state_dict(layer.gru.rightward.state_dict())
        return gru
    gru = nn.GRU(8, 4, bidirectional=True).double()
    rightward, leftward = layer.gru.rightward.state_dict(), layer.gru.leftward.state_dict()
    gru.load_state_dict(rightward | {f"{name}_reverse": value for name, value in leftward.items()})
    return gru


def run(layer, stack, x, mask=None, **cached):
    return layer(x, mask) if stack == "encoder" else layer(x, self_attn_padding_mask=mask, **cached)[0]


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("norm_first", [True, False])
def test_equals_packed_sequences(stack, side, norm_first):
    layer = build_slot("G", stack, slot_config(norm_first=norm_first)).double()
    rows = [torch.randn(n, 8, dtype=torch.float64) for n in LENGTHS]
    x, mask = torch.full((6, 3, 8), 9.0, dtype=torch.float64), torch.ones(3, 6, dtype=torch.bool)
    places = [slice(0, n) if side == "right" else slice(6 - n, 6) for n in LENGTHS]
    for i, (row, place) in enumerate(zip(rows, places)):
        x[place, i], mask[i, place] = row, False

    norm = layer.gru.layer_norm
    packed = pack_sequence([norm(row) if norm_first else row for row in rows], enforce_sorted=False)
    expected = unpack_sequence(reference(layer, stack)(packed)[0])
    y = run(layer, stack, x, mask)
    for i, (row, place) in enumerate(zip(rows, places)):
        wanted = row + expected[i] if norm_first else norm(row + expected[i])
        assert (y[place, i] - wanted).abs().max() < 1e-12


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_without_padding(stack):
    layer = build_slot("G", stack, slot_config()).double()
    x = torch.randn(5, 3, 8, dtype=torch.float64)
    expected = x + reference(layer, stack)(layer.gru.layer_norm(x))[0]
    y = run(layer, stack, x)
    assert (y - expected).abs().max() < 1e-12
    assert run(layer, stack, x, torch.zeros(3, 5, dtype=torch.bool)).equal(y)


@torch.no_grad()
@pytest.mark.parametrize("sizes", [(1,) * 6, (3, 1, 2)])
def test_token_by_token(sizes):
    """Sentences of 4, 1 and 6 tokens with padding on the left, given in parts and reordered after the first three tokens."""
    layer = build_slot("G", "decoder", slot_config()).double()
    x, order = torch.randn(6, 3, 8, dtype=torch.float64), torch.tensor([2, 0, 2])
    mask = torch.tensor([[time < 6 - length for time in range(6)] for length in LENGTHS])
    expected, cached, start = run(layer, "decoder", x, mask), {}, 0
    for size in sizes:
        if start == 3:
            layer.gru.reorder_incremental_state(cached, order)
            x, mask, expected = x[:, order], mask[order], expected[:, order]
        part, start = slice(start, start + size), start + size
        given = mask[:, part] if mask[:, part].any() else None  # as fairseq's decoder
        y = run(layer, "decoder", x[part], given, incremental_state=cached)
        is_token = ~mask[:, part].t()
        assert (y - expected[part])[is_token].abs().max() < 1e-12


@torch.no_grad()
def test_token_by_token_in_two_types():
    """With ``--frozen-dtype bf16``."""
    layer, cached = build_slot("G", "decoder", slot_config()), {}
    use_dtype(layer, torch.bfloat16)
    x, mask = torch.randn(4, 2, 8), torch.tensor([[True], [False]])
    expected = run(layer, "decoder", x, mask.repeat(1, 4) & (torch.arange(4) < 1))
    steps = [run(layer, "decoder", x[t : t + 1], None if t else mask, incremental_state=cached) for t in range(4)]
    assert torch.allclose(torch.cat(steps)[1:], expected[1:], atol=0.02)


@pytest.mark.parametrize("autocast", [False, True])
def test_a_state_of_another_type_is_converted(autocast):
    gru, x, state = nn.GRU(8, 4).bfloat16(), torch.randn(1, 3, 8), torch.randn(1, 3, 4)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        y = in_one_dtype(gru, x, state)[0]
    assert y.equal(gru(x.bfloat16(), state.bfloat16())[0])


def test_odd_width_is_refused():
    with pytest.raises(ValueError, match="even width, not 7"):
        build_slot("G", "encoder", slot_config(embed_dim=7))


@pytest.mark.parametrize("autocast", [False, True])
def test_matrices_and_biases_of_two_types_run_in_that_of_the_matrices(autocast):
    """With ``--frozen-dtype bf16`` on a GPU, the output equals that of a GRU in bfloat16."""
    gru = nn.GRU(8, 4)
    rounded = copy.deepcopy(gru).bfloat16()
    for parameter in gru.parameters():
        if parameter.dim() > 1:
            parameter.data = parameter.data.bfloat16()
    x = torch.randn(5, 3, 8)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        y = in_one_dtype(gru, x)[0]
    assert y.dtype == torch.bfloat16 and y.equal(rounded(x.bfloat16())[0])
