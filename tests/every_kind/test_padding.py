"""A sentence's logits depend neither on the other sentences of a batch nor on the side of the padding.

The tolerance is 1e-5 in float32 and 1e-10 in float64.
"""

import pytest
import torch

from fairseq_reservoir.plan.kinds import letters_where
from tests.support.building import build, logits, pad, sentences, shift
from tests.support.letters import LETTERS, RESERVOIRS, named

pytestmark = pytest.mark.usefixtures("exact_softmax")
TOLERANCES = [(torch.float32, 1e-5), (torch.float64, 1e-10)]
ROWS = sentences(4, 9, 1, 6)


@torch.no_grad()
def largest_difference(model, target_lengths=(5, 5, 5, 5)):
    """Largest difference between the logits of a sentence alone and in a batch of all four, padded on either side."""
    targets = [shift(target[None])[0] for target in sentences(*target_lengths, seed=2)]
    alone = [logits(model, source[None], target[None])[0] for source, target in zip(ROWS, targets)]
    differences = []
    for side in ("left", "right"):
        together = logits(model, pad(ROWS, side), pad(targets, side))
        for expected, in_batch in zip(alone, together):
            words = slice(len(expected)) if side == "right" else slice(-len(expected), None)
            differences.append((expected - in_batch[words]).abs().max())
    return torch.stack(differences).max()  # NaN if any logit is NaN


@pytest.mark.parametrize("dtype, tolerance", TOLERANCES)
@pytest.mark.parametrize("norm", ["paper", "model"])
@pytest.mark.parametrize("letter", named(LETTERS["encoder"]))
def test_padded_source(letter, norm, dtype, tolerance):
    # The letter on the embeddings, on itself and on L, and below L.
    model = build(f"{letter}{letter}L{letter}", reservoir_norm=norm, reservoir_kernel_sizes="3,7").to(dtype).eval()
    assert largest_difference(model) < tolerance


@pytest.mark.parametrize("dtype, tolerance", TOLERANCES)
@pytest.mark.parametrize("letter", named(LETTERS["decoder"]))
def test_padded_target(letter, dtype, tolerance):
    model = build("LG", f"{letter}L{letter}", reservoir_kernel_sizes="3,7").to(dtype).eval()
    assert largest_difference(model, target_lengths=(3, 8, 5, 1)) < tolerance


@pytest.mark.parametrize("letter", named(RESERVOIRS["encoder"]))
def test_learned_positions_and_norm_first(letter):
    model = build(f"L{letter}", encoder_learned_pos=True, encoder_normalize_before=True).double().eval()
    assert largest_difference(model) < 1e-10


@torch.no_grad()
def test_convolution_of_long_sentences():
    """fairseq uses another implementation beyond 512 tokens."""
    model = build("CC", reservoir_kernel_sizes="3,7").double().eval()
    rows, target = sentences(500, 600), shift(pad(sentences(5, 5)))
    together = logits(model, pad(rows), target)
    for i, row in enumerate(rows):
        assert (logits(model, row[None], target[i : i + 1])[0] - together[i]).abs().max() < 1e-10


@pytest.mark.parametrize("letter", named(letters_where("encoder", fairseqs=False)))
def test_values_at_padding_have_no_influence(letter):
    layer = build(letter, "L").encoder.layers[0].double()
    x = torch.randn(6, 3, 8, dtype=torch.float64)
    mask = torch.tensor([[0, 0, 0, 0, 1, 1], [1, 1, 1, 0, 0, 0], [0, 0, 0, 0, 0, 0]]).bool()
    at_padding = mask.t().unsqueeze(2)
    y, z = layer(x, mask), layer(x.masked_fill(at_padding, 100.0), mask)
    assert y.masked_fill(at_padding, 0).equal(z.masked_fill(at_padding, 0))
