"""Projected loss, computed in slices, against fairseq's loss of all logits and autograd in float64."""

import pytest
import torch
from fairseq.criterions.label_smoothed_cross_entropy import label_smoothed_nll_loss

from fairseq_reservoir.speed import projected_loss as module
from fairseq_reservoir.speed.projected_loss import projected_loss


def fairseq_loss(features, weight, target, epsilon):
    logits = features @ weight.t()
    return label_smoothed_nll_loss(torch.log_softmax(logits, -1), target, epsilon)


def draw(rows, dim, vocabulary, seed=0):
    torch.manual_seed(seed)
    return [torch.randn(rows, dim), torch.randn(vocabulary, dim)], torch.randint(0, vocabulary, (rows,))


@pytest.mark.parametrize("epsilon", [0.0, 0.1])
@pytest.mark.parametrize("rows", [1, 6, 7, 20])
def test_loss_and_gradients_for_any_number_of_slices(monkeypatch, epsilon, rows):
    monkeypatch.setattr(module, "_LOGITS", 3 * 11)  # slices of three rows
    tensors, target = draw(rows, 5, 11)
    ours = [t.clone().requires_grad_() for t in tensors]
    theirs = [t.double().requires_grad_() for t in tensors]
    loss, nll = projected_loss(*ours, target, epsilon)
    expected, expected_nll = fairseq_loss(*theirs, target, epsilon)
    (3 * loss).backward(), (3 * expected).sum().backward()
    torch.testing.assert_close(loss.double(), expected.sum(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(nll.double(), expected_nll.sum(), rtol=1e-5, atol=1e-5)
    for our_tensor, their_tensor in zip(ours, theirs):
        torch.testing.assert_close(our_tensor.grad.double(), their_tensor.grad, rtol=1e-5, atol=1e-5)


def test_a_frozen_weight_gets_no_gradient():
    (x, weight), target = draw(6, 5, 11)
    x.requires_grad_()
    projected_loss(x, weight, target, 0.1)[0].backward()
    assert x.grad is not None and weight.grad is None
    with torch.no_grad():
        assert not projected_loss(x, weight, target, 0.1)[0].requires_grad


def test_no_gradient_is_computed_in_validation(monkeypatch):
    (x, weight), target = draw(6, 5, 11)
    trained = [tensor.requires_grad_() for tensor in (x, weight)]
    expected = projected_loss(*trained, target, 0.1)
    monkeypatch.setattr(module, "_add_product", None)  # accumulates the gradient of the projection
    with torch.no_grad():
        assert all(ours.equal(theirs) for ours, theirs in zip(projected_loss(*trained, target, 0.1), expected))
    with pytest.raises(TypeError):
        projected_loss(*trained, target, 0.1)


def test_bfloat16_is_summed_in_float():
    (x, weight), target = draw(300, 16, 50)
    ours = [t.bfloat16().requires_grad_() for t in (x, weight)]
    loss, _ = projected_loss(*ours, target, 0.1)
    theirs = [t.detach().double().requires_grad_() for t in ours]
    expected, _ = fairseq_loss(*theirs, target, 0.1)
    loss.backward(), expected.sum().backward()
    assert loss.dtype == torch.float32 and loss.item() == pytest.approx(expected.sum().item(), rel=2e-3)
    for our_tensor, their_tensor in zip(ours, theirs):
        assert our_tensor.grad.dtype == torch.bfloat16
        assert (our_tensor.grad - their_tensor.grad).norm() < 1e-2 * their_tensor.grad.norm()


def test_the_loss_can_be_multiplied_by_0_in_place():
    """``FairseqTask.train_step`` does this on a rank with a dummy batch, which only keeps the ranks in step."""
    (x, weight), target = draw(6, 5, 11)
    x.requires_grad_(), weight.requires_grad_()
    loss, _ = projected_loss(x, weight, target, 0.1)
    assert loss.item() > 0
    loss *= 0
    loss.backward()
    assert x.grad.eq(0).all() and weight.grad.eq(0).all()


def test_no_tokens():
    (x, weight), target = draw(0, 5, 11)
    x.requires_grad_(), weight.requires_grad_()
    loss, nll = projected_loss(x, weight, target, 0.1)
    loss.backward()
    assert loss.item() == nll.item() == 0 and weight.grad.eq(0).all()
