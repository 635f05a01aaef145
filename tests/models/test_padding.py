"""A sentence's logits depend neither on what it is batched with nor on the side of the padding.

1e-5 in float32 and 1e-10 in float64.
"""

import pytest
import torch

from tests.building import DECODER_LETTERS, ENCODER_LETTERS, build, logits, pad, sentences, shift

pytestmark = pytest.mark.usefixtures("exact_softmax")
TOLERANCES = [(torch.float32, 1e-5), (torch.float64, 1e-10)]
ROWS = sentences(4, 9, 1, 6)


def largest_difference(model, row, side, **padded_target):
    """Between the logits of sentence ``row`` alone and in a batch of all."""
    targets = [shift(target[None])[0] for target in sentences(*padded_target.get("lengths", (5,) * 4), seed=2)]
    with torch.no_grad():
        alone = logits(model, ROWS[row][None], targets[row][None])[0]
        in_batch = logits(model, pad(ROWS, side), pad(targets))[row, : len(targets[row])]
    assert alone.isfinite().all()
    return (alone - in_batch).abs().max()


@pytest.mark.parametrize("dtype, tolerance", TOLERANCES)
@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("norm", ["paper", "model"])
@pytest.mark.parametrize("letter", ENCODER_LETTERS)
def test_padded_source(letter, norm, side, dtype, tolerance):
    for plan in (letter * 2, f"L{letter}L"):
        model = build(plan, "L", reservoir_norm=norm, reservoir_kernel_sizes="3,7").to(dtype).eval()
        assert max(largest_difference(model, row, side) for row in range(4)) < tolerance


@pytest.mark.parametrize("dtype, tolerance", TOLERANCES)
@pytest.mark.parametrize("letter", DECODER_LETTERS)
def test_padded_target(letter, dtype, tolerance):
    model = build("LG", f"{letter}L{letter}", reservoir_kernel_sizes="3,7").to(dtype).eval()
    assert max(largest_difference(model, row, "left", lengths=(3, 8, 5, 1)) for row in range(4)) < tolerance


@pytest.mark.parametrize("letter", "TFGC")
def test_learned_positions_before_the_final_norm(letter):
    model = build(f"L{letter}", "L", encoder_learned_pos=True, encoder_normalize_before=True).double().eval()
    assert max(largest_difference(model, row, side) for row in range(4) for side in ("left", "right")) < 1e-10


@pytest.mark.parametrize("letter", "GC")
def test_what_stands_at_padding_has_no_influence(letter):
    layer = build(letter, "L").encoder.layers[0].double()
    torch.manual_seed(2)
    x = torch.randn(6, 3, 8, dtype=torch.float64)
    mask = torch.tensor([[0, 0, 0, 0, 1, 1], [1, 1, 1, 0, 0, 0], [0, 0, 0, 0, 0, 0]]).bool()
    at_padding = mask.t().unsqueeze(2)
    y, z = layer(x, mask), layer(x.masked_fill(at_padding, 100.0), mask)
    assert y.masked_fill(at_padding, 0).equal(z.masked_fill(at_padding, 0))
