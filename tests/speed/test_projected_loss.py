"""The loss of a projection, slice by slice, against the loss of all logits and autograd in float64."""

import pytest
import torch
from fairseq.criterions.label_smoothed_cross_entropy import label_smoothed_nll_loss

from fairseq_reservoir.speed import projected_loss as module
from fairseq_reservoir.speed.projected_loss import projected_loss


def slow(features, weight, target, epsilon):
    logits = features @ weight.t()
    return label_smoothed_nll_loss(torch.log_softmax(logits, -1), target, epsilon)


def draw(rows, dim, words, seed=0):
    torch.manual_seed(seed)
    return [torch.randn(rows, dim), torch.randn(words, dim)], torch.randint(0, words, (rows,))


@pytest.mark.parametrize("epsilon", [0.0, 0.1])
@pytest.mark.parametrize("rows", [1, 6, 7, 20])
def test_loss_and_gradients_whatever_the_slices(monkeypatch, epsilon, rows):
    monkeypatch.setattr(module, "_LOGITS", 3 * 11)  # slices of three rows
    tensors, target = draw(rows, 5, 11)
    ours = [t.clone().requires_grad_() for t in tensors]
    theirs = [t.double().requires_grad_() for t in tensors]
    loss, nll = projected_loss(*ours, target, epsilon)
    expected, expected_nll = slow(*theirs, target, epsilon)
    (3 * loss).backward(), (3 * expected).sum().backward()
    torch.testing.assert_close(loss.double(), expected.sum(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(nll.double(), expected_nll.sum(), rtol=1e-5, atol=1e-5)
    for one, other in zip(ours, theirs):
        torch.testing.assert_close(one.grad.double(), other.grad, rtol=1e-5, atol=1e-5)


def test_what_is_frozen_gets_no_gradient():
    (x, weight), target = draw(6, 5, 11)
    x.requires_grad_()
    projected_loss(x, weight, target, 0.1)[0].backward()
    assert x.grad is not None and weight.grad is None
    with torch.no_grad():
        assert not projected_loss(x, weight, target, 0.1)[0].requires_grad


def test_a_validation_works_out_no_gradient(monkeypatch):
    (x, weight), target = draw(6, 5, 11)
    trained = [tensor.requires_grad_() for tensor in (x, weight)]
    expected = projected_loss(*trained, target, 0.1)
    monkeypatch.setattr(module, "_add_product", None)  # which adds up the gradient of the projection
    with torch.no_grad():
        assert all(ours.equal(theirs) for ours, theirs in zip(projected_loss(*trained, target, 0.1), expected))
    with pytest.raises(TypeError):
        projected_loss(*trained, target, 0.1)


def test_bfloat16_is_summed_in_float():
    (x, weight), target = draw(300, 16, 50)
    ours = [t.bfloat16().requires_grad_() for t in (x, weight)]
    loss, _ = projected_loss(*ours, target, 0.1)
    theirs = [t.detach().double().requires_grad_() for t in ours]
    expected, _ = slow(*theirs, target, 0.1)
    loss.backward(), expected.sum().backward()
    assert loss.dtype == torch.float32 and loss.item() == pytest.approx(expected.sum().item(), rel=2e-3)
    for one, other in zip(ours, theirs):
        assert one.grad.dtype == torch.bfloat16
        assert (one.grad - other.grad).norm() < 1e-2 * other.grad.norm()


def test_the_loss_of_a_process_without_a_batch_is_multiplied_by_0_in_place():
    """As ``FairseqTask.train_step`` does it with a batch that only keeps the processes together."""
    (x, weight), target = draw(6, 5, 11)
    x.requires_grad_(), weight.requires_grad_()
    loss, _ = projected_loss(x, weight, target, 0.1)
    assert loss.item() > 0
    loss *= 0
    loss.backward()
    assert x.grad.eq(0).all() and weight.grad.eq(0).all()


def test_no_word_at_all():
    (x, weight), target = draw(0, 5, 11)
    x.requires_grad_(), weight.requires_grad_()
    loss, nll = projected_loss(x, weight, target, 0.1)
    loss.backward()
    assert loss.item() == nll.item() == 0 and weight.grad.eq(0).all()
