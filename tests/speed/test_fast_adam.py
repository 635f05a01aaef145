"""FastAdam against values by hand and fairseq's Adam, its state dict, and the cases in which fairseq's own step runs."""

import copy
import math
from unittest.mock import patch

import pytest
import torch
from fairseq.optim.adam import Adam

from fairseq_reservoir.speed import fast_adam
from fairseq_reservoir.speed.fast_adam import FastAdam


def fast(parameters, **options):
    return FastAdam(parameters, **options)


def test_by_hand():
    """One step from p = 2 with g = 0.5: m = 0.05, v = 0.0025, and the step size is 0.1 sqrt(0.01) / 0.1 = 0.1.

    Learning rate 0.1, weight decay 0.01, betas 0.9 and 0.99, eps 0.3.

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
def test_many_steps_match_fairseqs_adam(eps, decay):
    torch.manual_seed(0)
    slow_parameters = [torch.nn.Parameter(torch.randn(shape)) for shape in ((3, 4), (5,), (1,), (2, 33))]
    fast_parameters = copy.deepcopy(slow_parameters)
    options = {"lr": 0.01, "betas": (0.9, 0.98), "eps": eps, "weight_decay": decay}
    optimizers = Adam(slow_parameters, **options), fast(fast_parameters, **options)
    for step in range(50):
        for number, (slow, fast_copy) in enumerate(zip(slow_parameters, fast_parameters)):
            # The second parameter has no gradient in the first 8 updates, so that its step count differs.
            slow.grad = torch.randn_like(slow) if number != 1 or step > 7 else None
            fast_copy.grad = None if slow.grad is None else slow.grad.clone()
        for optimizer in optimizers:
            optimizer.param_groups[0]["lr"] = 0.01 / math.sqrt(1 + step)
            optimizer.step()
    for slow, fast_copy in zip(slow_parameters, fast_parameters):
        torch.testing.assert_close(slow, fast_copy, rtol=1e-5, atol=1e-6)
    expected, found = (optimizer.state_dict() for optimizer in optimizers)
    assert [list(s) for s in expected["state"].values()] == [list(s) for s in found["state"].values()]
    steps = [{number: state["step"] for number, state in saved["state"].items()} for saved in (expected, found)]
    assert steps == [{0: 50, 1: 42, 2: 50, 3: 50}] * 2


@pytest.mark.parametrize(
    "dtype, options", [(torch.bfloat16, {}), (torch.float64, {}), (torch.float32, {"amsgrad": True})]
)
def test_unsupported_options_use_fairseqs_step(dtype, options):
    fairseqs = [torch.nn.Parameter(torch.arange(1.0, 5).to(dtype))]
    ours = copy.deepcopy(fairseqs)
    options |= {"betas": (0.9, 0.5)}  # the second step halves v, but not the maximum of v, which amsgrad uses
    for optimizer, (p,) in ((Adam(fairseqs, **options), fairseqs), (fast(ours, **options), ours)):
        for gradient in (1, 0):
            p.grad = torch.full_like(p, gradient)
            optimizer.step()
    assert fairseqs[0].equal(ours[0])


def test_each_optimizer_loads_the_state_of_the_other():
    def train(optimizer_class, state=None, steps=3):
        p = torch.nn.Parameter(torch.tensor([1.0, -2.0]))
        optimizer = optimizer_class([p], lr=0.1)
        if state:
            optimizer.load_state_dict(state)
        for step in range(steps):
            p.grad = torch.tensor([1.0, 0.1 * step])
            optimizer.step()
        return p.detach(), optimizer.state_dict()

    expected = train(Adam, train(Adam)[1])[0]
    assert train(fast, train(Adam)[1])[0].allclose(expected) and train(Adam, train(fast)[1])[0].allclose(expected)


def _drop_state(optimizer, p):
    optimizer.state.pop(p)


def _load_own_state(optimizer, p):
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))


def _replace_a_moment(optimizer, p):
    optimizer.state[p]["exp_avg"] = 3 * optimizer.state[p]["exp_avg"]


def _change_a_step_number(optimizer, p):
    optimizer.state[p]["step"] = 40


def _add_a_group(optimizer, p):
    other = torch.nn.Parameter(torch.ones(3))
    other.grad = torch.full((3,), 0.5)
    optimizer.add_param_group({"params": [other], "lr": 0.1})


def _begin_amsgrad(optimizer, p):
    optimizer.param_groups[0]["amsgrad"] = True
    for state in optimizer.state.values():
        state["max_exp_avg_sq"] = state["exp_avg_sq"].clone()


def _end_amsgrad(optimizer, p):
    optimizer.param_groups[0]["amsgrad"] = False


@pytest.mark.parametrize("persistent", [True, False])
@pytest.mark.parametrize(
    "changes",
    [
        {3: _drop_state},
        {3: _load_own_state, 6: _load_own_state},
        {4: _replace_a_moment},
        {2: _change_a_step_number},
        {5: _add_a_group},
        {3: _begin_amsgrad, 6: _end_amsgrad},
    ],
)
def test_changes_between_updates_with_kept_lists(changes, persistent):
    """fairseq's Adam reads everything again in each update. The changes are the same in both optimizers."""
    torch.manual_seed(0)
    slow_parameters = [torch.nn.Parameter(torch.randn(shape)) for shape in ((3, 4), (5,), (1,))]
    fast_parameters = copy.deepcopy(slow_parameters)
    optimizers = Adam(slow_parameters, lr=0.01), fast(fast_parameters, lr=0.01)
    kept = [torch.zeros_like(p) for p in fast_parameters]
    for step in range(10):
        for slow, fast_copy, gradient in zip(slow_parameters, fast_parameters, kept):
            slow.grad = torch.randn_like(slow)
            fast_copy.grad = gradient.copy_(slow.grad) if persistent else slow.grad.clone()
        for optimizer, (p, *_) in zip(optimizers, (slow_parameters, fast_parameters)):
            changes.get(step, lambda *_: None)(optimizer, p)
            optimizer.step()
    pairs = [[p for group in optimizer.param_groups for p in group["params"]] for optimizer in optimizers]
    for slow, fast_copy in zip(*pairs, strict=True):
        torch.testing.assert_close(slow, fast_copy, rtol=1e-5, atol=1e-6)
    expected, found = (optimizer.state_dict()["state"] for optimizer in optimizers)
    assert [state["step"] for state in expected.values()] == [state["step"] for state in found.values()]
    for number, state in expected.items():
        torch.testing.assert_close(state["exp_avg"], found[number]["exp_avg"], rtol=1e-5, atol=1e-6)


def test_lists_are_built_once_for_persistent_gradients():
    parameters = [torch.nn.Parameter(torch.ones(2)) for _ in range(4)]
    for p in parameters:
        p.grad = torch.ones(2)
    optimizer = fast(parameters)
    with patch.object(fast_adam, "_batches", wraps=fast_adam._batches) as built:
        with patch.object(fast_adam, "_are_plain", wraps=fast_adam._are_plain) as checked:
            for _ in range(5):
                optimizer.step()
    assert built.call_count == 1 and checked.call_count == 2  # parameters and gradients
    assert [state["step"] for state in optimizer.state.values()] == [5] * 4


def test_a_closure_is_called_once():
    p = torch.nn.Parameter(torch.ones(2))
    calls = []

    def closure():
        calls.append(1)
        p.grad = torch.ones(2)
        return "loss"

    assert fast([p], lr=0.1).step(closure) == "loss" and calls == [1] and p.max() < 0.95
