"""Adam in one pass: fairseq's update by hand and against fairseq's, its state, and the cases in which fairseq's step runs."""

import copy
import math

import pytest
import torch
from fairseq.optim.adam import Adam

from fairseq_reservoir.speed.fast_adam import FastAdam


def fast(parameters, **options):
    return FastAdam(parameters, **options)


def test_by_hand():
    """p = 2, g = 0.5, rate 0.1, decay 0.01, b 0.9 and 0.99, eps 0.3: m = 0.05, v = 0.0025, the step's size 0.1 sqrt(0.01) / 0.1 = 0.1.

    p <- 2 - 0.1 x 0.01 x 2 - 0.1 x 0.05 / (0.05 + 0.3)
    """
    p = torch.nn.Parameter(torch.tensor([2.0]))
    p.grad = torch.tensor([0.5])
    optimizer = fast([p], lr=0.1, betas=(0.9, 0.99), eps=0.3, weight_decay=0.01)
    optimizer.step()
    assert p.item() == pytest.approx(2 - 0.002 - 0.1 * 0.05 / 0.35, rel=1e-6)
    state = optimizer.state[p]
    assert state["step"] == 1 and type(state["step"]) is int
    assert state["exp_avg"].item() == pytest.approx(0.05) and state["exp_avg_sq"].item() == pytest.approx(0.0025)


@pytest.mark.parametrize("eps", [1e-8, 1e-3])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_many_steps_are_fairseqs(eps, decay):
    torch.manual_seed(0)
    slow_ones = [torch.nn.Parameter(torch.randn(shape)) for shape in ((3, 4), (5,), (1,), (2, 33))]
    fast_ones = copy.deepcopy(slow_ones)
    options = {"lr": 0.01, "betas": (0.9, 0.98), "eps": eps, "weight_decay": decay}
    optimizers = Adam(slow_ones, **options), fast(fast_ones, **options)
    for step in range(50):
        for number, (one, other) in enumerate(zip(slow_ones, fast_ones)):
            # The second is not trained at first, so that it is younger than the others.
            one.grad = torch.randn_like(one) if number != 1 or step > 7 else None
            other.grad = None if one.grad is None else one.grad.clone()
        for optimizer in optimizers:
            optimizer.param_groups[0]["lr"] = 0.01 / math.sqrt(1 + step)
            optimizer.step()
    for one, other in zip(slow_ones, fast_ones):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)
    one, other = (optimizer.state_dict() for optimizer in optimizers)
    assert [list(s) for s in one["state"].values()] == [list(s) for s in other["state"].values()]
    steps = [{number: state["step"] for number, state in found["state"].items()} for found in (one, other)]
    assert steps == [{0: 50, 1: 42, 2: 50, 3: 50}] * 2


@pytest.mark.parametrize(
    "dtype, options", [(torch.bfloat16, {}), (torch.float64, {}), (torch.float32, {"amsgrad": True})]
)
def test_what_is_left_to_fairseq(dtype, options):
    ones = [torch.nn.Parameter(torch.arange(1.0, 5).to(dtype))]
    others = copy.deepcopy(ones)
    for optimizer, (p,) in ((Adam(ones, **options), ones), (fast(others, **options), others)):
        p.grad = torch.ones_like(p)
        optimizer.step()
    assert ones[0].equal(others[0])


def test_state_goes_from_one_to_the_other():
    def trained(kind, state=None, steps=3):
        p = torch.nn.Parameter(torch.tensor([1.0, -2.0]))
        optimizer = kind([p], lr=0.1)
        if state:
            optimizer.load_state_dict(state)
        for step in range(steps):
            p.grad = torch.tensor([1.0, 0.1 * step])
            optimizer.step()
        return p.detach(), optimizer.state_dict()

    whole = trained(Adam, trained(Adam)[1])[0]
    assert trained(fast, trained(Adam)[1])[0].allclose(whole) and trained(Adam, trained(fast)[1])[0].allclose(whole)
