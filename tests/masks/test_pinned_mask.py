"""Pinned mask entries: counts and gradient, and the baseline with random masks."""

import pytest
import torch

from fairseq_reservoir.masks.masked_linear import MaskedLinear
from fairseq_reservoir.masks.pinned_mask import draw_pinned
from fairseq_reservoir.plan.mask_choices import MaskChoices, keep_count


# 10 columns: a pin of 0.3 pins 3 per row and 60 of 200 entries, and round(keep * 60) of them are kept.
@pytest.mark.parametrize("keep, pinned_ones", [(0.5, 30), (0.1, 6), (0.9, 54)])
def test_pinned_entries_have_no_score_and_never_change(keep, pinned_ones):
    layer = MaskedLinear(10, 20, keep, pin=0.3, seed=1)
    assert layer.scores.shape == (20, 7) and layer.learned.shape == (20, 7)
    assert layer.pinned.sum() == pinned_ones and layer.mask.sum() == keep_count(keep, 200)
    is_pinned = torch.ones(20, 10, dtype=torch.bool).scatter(1, layer.learned, False)
    assert is_pinned.sum() == 60
    before = layer.mask.clone()
    with torch.no_grad():
        layer.scores.copy_(torch.rand(20, 7))
    assert torch.equal(layer.mask[is_pinned], before[is_pinned]) and not torch.equal(layer.mask, before)
    assert layer.mask.sum() == keep_count(keep, 200)


def test_gradient_with_pinned_entries():
    layer = MaskedLinear(10, 20, 0.5, pin=0.3, seed=1)
    x, upstream = torch.randn(6, 10), torch.randn(6, 20)
    (layer(x) * upstream).sum().backward()
    expected = ((upstream.T @ x) * layer.frozen_weight).gather(1, layer.learned) * layer.scores.detach().sign()
    torch.testing.assert_close(layer.scores.grad, expected, rtol=1e-6, atol=1e-7)


def test_pin_by_row_keeps_the_count_of_every_row():
    # 10 columns, 3 pinned: round(0.5 * 3) = 2 of them are kept, and 5 - 2 = 3 of the other 7.
    layer = MaskedLinear(10, 20, 0.5, pin=0.3, scope="row", seed=1)
    assert layer.pinned.sum(1).tolist() == [2] * 20 and layer.mask.sum(1).tolist() == [5] * 20


@pytest.mark.parametrize("choices", [{}, {"coats": (0.2,)}, {"kind": "signed"}, {"scope": "row"}])
def test_random_masks_keep_the_count_and_have_nothing_to_train(choices):
    layer = MaskedLinear(10, 20, 0.4, random=True, seed=1, **choices)
    assert not list(layer.parameters()) and list(layer.state_dict()) == ["frozen_weight"]
    assert (layer.mask != 0).sum() == 80 and not layer(torch.randn(2, 10)).requires_grad
    assert torch.equal(layer.mask, MaskedLinear(10, 20, 0.4, random=True, seed=1, **choices).mask)
    assert not torch.equal(layer.mask, MaskedLinear(10, 20, 0.4, random=True, seed=2, **choices).mask)
    if "coats" in choices:
        assert (layer.mask == 2).sum() == 40
    if "kind" in choices:
        assert 20 < (layer.mask == -1).sum() < 60


def test_the_draw_depends_on_the_seed_and_the_name_only():
    choices = MaskChoices(0.5, pin=0.5)
    mask, learned, counts = draw_pinned((4, 6), choices, 1, "w")
    assert counts == [6] and mask.dtype == torch.bool and learned.shape == (4, 3)
    for seed, name, same in ((1, "w", True), (2, "w", False), (1, "v", False)):
        assert torch.equal(draw_pinned((4, 6), choices, seed, name)[1], learned) == same
