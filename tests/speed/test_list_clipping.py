"""Clipping over lists, by hand and against fairseq's function."""

import pytest
import torch
from fairseq.optim import FairseqOptimizer
from fairseq.optim.sgd import SGD

from fairseq_reservoir.speed.list_clipping import ListClipping, use_list_clipping


class Plain(FairseqOptimizer):
    def __init__(self, parameters):
        super().__init__(None)
        self._optimizer = torch.optim.SGD(parameters, lr=0.1)


def parameters(*gradients):
    found = []
    for gradient in gradients:
        p = torch.nn.Parameter(torch.zeros_like(gradient) if gradient is not None else torch.zeros(2))
        p.grad = None if gradient is None else gradient.clone()
        found.append(p)
    return found


@pytest.mark.parametrize("limit, factor", [(0, 1), (20, 1), (6.5, 0.5)])
def test_by_hand(limit, factor):
    """Gradients (3, 4) and 12 have the norm 13."""
    ours = parameters(torch.tensor([3.0, 4.0]), None, torch.tensor([12.0]))
    norm = use_list_clipping(Plain(ours)).clip_grad_norm(limit)
    assert norm == 13 and ours[1].grad is None
    torch.testing.assert_close(ours[0].grad, factor * torch.tensor([3.0, 4.0]))
    torch.testing.assert_close(ours[2].grad, factor * torch.tensor([12.0]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("count", [0, 1, 5])
@pytest.mark.parametrize("aggregate", [None, lambda norm: 2 * norm])
def test_as_fairseq(count, dtype, aggregate):
    torch.manual_seed(0)
    gradients = [torch.randn(3, number + 1, dtype=dtype) for number in range(count)]
    theirs, ours = parameters(*gradients, None), parameters(*gradients, None)
    expected = Plain(theirs).clip_grad_norm(0.5, aggregate)
    found = use_list_clipping(Plain(ours)).clip_grad_norm(0.5, aggregate)
    torch.testing.assert_close(found, expected)
    for p, q in zip(theirs, ours):
        torch.testing.assert_close(p.grad, q.grad)


@pytest.mark.parametrize("factor", [0.5, torch.tensor(0.5)])
def test_scaling(factor):
    """The second update has the gradients of the first, the third has new ones, and the fourth half-precision ones."""
    ours = parameters(torch.tensor([3.0, 4.0]), None, torch.tensor([12.0]))
    optimizer = use_list_clipping(Plain(ours))
    for expected in (1.5, 0.75):
        optimizer.multiply_grads(factor)
        assert ours[0].grad[0] == expected and ours[1].grad is None and ours[2].grad == 4 * expected
    optimizer.zero_grad()
    assert ours[0].grad is None
    optimizer.multiply_grads(factor)
    for p in ours:
        p.grad = torch.ones_like(p)
    optimizer.multiply_grads(factor)
    assert [p.grad[0].item() for p in ours] == [0.5, 0.5, 0.5]
    half = torch.nn.Parameter(torch.ones(2, dtype=torch.bfloat16))
    half.grad = torch.full((2,), 3.0, dtype=torch.bfloat16)
    use_list_clipping(Plain([half, ours[0]])).multiply_grads(factor)
    assert half.grad.tolist() == [1.5, 1.5] and ours[0].grad[0] == 0.25


def test_gradients_of_experts_are_not_in_the_norm():
    ours = parameters(torch.tensor([3.0, 4.0]), torch.tensor([5.0]), torch.tensor([12.0]))
    ours[1].expert = True
    assert use_list_clipping(Plain(ours)).clip_grad_norm(0) == 13


def test_an_optimizer_that_clips_or_scales_in_its_own_way():
    class Own(Plain):
        def clip_grad_norm(self, max_norm, aggregate_norm_fn=None):
            return torch.tensor(1.0)

    class OwnScale(Plain):
        def multiply_grads(self, c):
            pass

    scaled = OwnScale(parameters(torch.ones(1)))
    assert use_list_clipping(scaled) is scaled
    own, sgd = Own(parameters(torch.ones(1))), SGD.__new__(SGD)
    assert use_list_clipping(own) is own
    changed = use_list_clipping(sgd)
    assert isinstance(changed, ListClipping) and type(changed).__name__ == type(sgd).__name__
    assert use_list_clipping(changed) is changed
