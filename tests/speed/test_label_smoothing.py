"""Fused label smoothing against values by hand, and against fairseq's loss and autograd in float64."""

import math

import pytest
import torch
from fairseq.criterions.label_smoothed_cross_entropy import label_smoothed_nll_loss

from fairseq_reservoir.speed.label_smoothing import label_smoothing

PAD = 1


def fairseq_loss(logits, target, epsilon):
    return label_smoothed_nll_loss(torch.log_softmax(logits, -1), target, epsilon, ignore_index=PAD)


def test_by_hand():
    """Logits (0, 0, ln 2) give p = (1/4, 1/4, 1/2). With epsilon 0.2 the target (2) has weight 0.8, the others 0.1 each.

    The second row is padding.
    """
    logits = torch.tensor([[0.0, 0.0, math.log(2)], [5.0, 6.0, 7.0]], requires_grad=True)
    loss, nll = label_smoothing(logits, torch.tensor([2, PAD]), 0.2, PAD)
    assert nll.item() == pytest.approx(math.log(2))
    assert loss.item() == pytest.approx(0.8 * math.log(2) + 0.1 * 2 * math.log(4))
    loss.backward()
    assert logits.grad.allclose(torch.tensor([[0.25 - 0.1, 0.25 - 0.1, 0.5 - 0.8], [0.0, 0.0, 0.0]]))


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.5])
@pytest.mark.parametrize("scale", [1.0, 30.0, 1000.0])
def test_loss_and_gradient_match_fairseqs(epsilon, scale):
    torch.manual_seed(0)
    logits = scale * torch.randn(40, 57)
    target = torch.randint(0, 57, (40,))
    target[::7] = PAD
    ours = logits.clone().requires_grad_()
    theirs = logits.double().requires_grad_()
    loss, nll = label_smoothing(ours, target, epsilon, PAD)
    expected, expected_nll = fairseq_loss(theirs, target, epsilon)
    (3 * loss).backward(), (3 * expected).backward()
    torch.testing.assert_close(loss.double(), expected, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(nll.double(), expected_nll, rtol=1e-5, atol=1e-4)
    torch.testing.assert_close(ours.grad.double(), theirs.grad, rtol=1e-5, atol=1e-6)
    assert not nll.requires_grad


@pytest.mark.parametrize("dtype", [torch.half, torch.bfloat16])
def test_half_precision_is_summed_in_float(dtype):
    torch.manual_seed(0)
    logits, target = torch.randn(300, 50).to(dtype), torch.randint(2, 50, (300,))
    ours = logits.clone().requires_grad_()
    loss, _ = label_smoothing(ours, target, 0.1, PAD)
    expected, _ = fairseq_loss(logits.double(), target, 0.1)
    assert loss.dtype == torch.float32 and loss.item() == pytest.approx(expected.item(), rel=1e-6)
    loss.backward()
    assert ours.grad.dtype == dtype


def test_the_loss_of_a_very_unlikely_token_is_finite():
    logits = torch.tensor([[0.0, -500.0, 0.0]], requires_grad=True)
    loss, nll = label_smoothing(logits, torch.tensor([1]), 0.0, padding=2)
    assert nll.item() == pytest.approx(500 + math.log(2)) and loss.item() == pytest.approx(nll.item())


def test_only_padding():
    logits = torch.randn(3, 5, requires_grad=True)
    loss, nll = label_smoothing(logits, torch.full((3,), PAD), 0.1, PAD)
    loss.backward()
    assert loss.item() == nll.item() == 0 and logits.grad.eq(0).all()
