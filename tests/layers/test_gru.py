"""G equals torch's bidirectional GRU on the tokens of each sentence, for padding on any side."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence, unpack_sequence

from fairseq_reservoir.layers import build_slot
from fairseq_reservoir.layers.gru import in_one_dtype
from tests.support.building import slot_config

LENGTHS = (4, 1, 6)


def reference(layer):
    """torch's GRU with the weights of ``layer``."""
    gru = nn.GRU(8, 4, bidirectional=True).double()
    rightward, leftward = layer.gru.rightward.state_dict(), layer.gru.leftward.state_dict()
    gru.load_state_dict(rightward | {f"{name}_reverse": value for name, value in leftward.items()})
    return gru


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("norm_first", [True, False])
def test_equals_packed_sequences(side, norm_first):
    layer = build_slot("G", "encoder", slot_config(norm_first=norm_first)).double()
    rows = [torch.randn(n, 8, dtype=torch.float64) for n in LENGTHS]
    x, mask = torch.full((6, 3, 8), 9.0, dtype=torch.float64), torch.ones(3, 6, dtype=torch.bool)
    places = [slice(0, n) if side == "right" else slice(6 - n, 6) for n in LENGTHS]
    for i, (row, place) in enumerate(zip(rows, places)):
        x[place, i], mask[i, place] = row, False

    norm = layer.gru.layer_norm
    packed = pack_sequence([norm(row) if norm_first else row for row in rows], enforce_sorted=False)
    expected = unpack_sequence(reference(layer)(packed)[0])
    y = layer(x, mask)
    for i, (row, place) in enumerate(zip(rows, places)):
        wanted = row + expected[i] if norm_first else norm(row + expected[i])
        assert (y[place, i] - wanted).abs().max() < 1e-12


def test_without_padding():
    layer = build_slot("G", "encoder", slot_config()).double()
    x = torch.randn(5, 3, 8, dtype=torch.float64)
    expected = x + reference(layer)(layer.gru.layer_norm(x))[0]
    assert (layer(x) - expected).abs().max() < 1e-12
    assert layer(x, torch.zeros(3, 5, dtype=torch.bool)).equal(layer(x))


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
