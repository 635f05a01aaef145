"""Skipped backward passes: bits of true passes, estimators by hand, and no node of the layer in the graph."""

import copy

import pytest
import torch
from torch import nn

from fairseq_reservoir.layers.backskip.backward_skip import (
    Backskip,
    Reinforce,
    Synthetic,
    skipping_backward,
)
from fairseq_reservoir.layers.backskip.least_squares import LeastSquares


class Layer(nn.Module):
    """Frozen layer x + A x with the true gradient g + A^T g."""

    def __init__(self, width=4, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.matrix = nn.Parameter(torch.randn(width, width) / width, requires_grad=False)
        self.calls_with_graph = 0

    def forward(self, x, scale=1.0):
        self.calls_with_graph += torch.is_grad_enabled()
        return x + scale * (x @ self.matrix.t())


def built(kind, anneal, width=4, warmup=0):
    below, layer = nn.Linear(width, width), Layer(width)
    layer.backskip = Backskip(kind, "encoder.layers.1", width, seed=3, anneal=anneal, warmup=warmup)
    skipping_backward(layer, layer.backskip)
    return below, layer


def gradient_of(below, layer, x, weight):
    below.weight.grad = None
    (layer(below(x)) * weight).sum().backward()
    return below.weight.grad.clone()


@pytest.mark.parametrize("kind", ["synthetic", "reinforce", "identity"])
def test_always_true_is_no_skipping_bit_for_bit(kind):
    below, layer = built(kind, anneal=1)
    plain = Layer()
    state = torch.get_rng_state()
    for update in range(3):
        layer.backskip.set_num_updates(update)
        x, weight = torch.randn(5, 4), torch.randn(5, 4)
        state = torch.get_rng_state()
        assert gradient_of(below, layer, x, weight).equal(gradient_of(below, plain, x, weight))
        assert torch.get_rng_state().equal(state), "dropout of what follows would be another"


def test_never_true_has_no_node_of_the_layer_in_its_graph():
    below, layer = built("synthetic", anneal=0)
    below_only = below(torch.randn(5, 4))
    y = layer(below_only)
    assert layer.calls_with_graph == 0
    names, todo = set(), [y.grad_fn]
    while todo:
        node = todo.pop()
        names.add(type(node).__name__)
        todo += [following for following, _ in node.next_functions if following is not None]
    assert names == {"_SkipBackward", "AddmmBackward0", "TBackward0", "AccumulateGrad"}


def test_a_linear_layer_is_learnt_exactly():
    """dL/dx = g + A^T g is linear in g, so the regression finds W = A^T."""
    below, layer = built("synthetic", anneal=1)
    for update in range(1, 40):
        gradient_of(below, layer, torch.randn(64, 4), torch.randn(64, 4))
        layer.backskip.set_num_updates(update)
    # The ridge of 1e-3 shrinks W by about a thousandth.
    torch.testing.assert_close(layer.backskip.estimator.rest.map, layer.matrix.t(), rtol=2e-2, atol=2e-3)
    assert layer.backskip.cosine > 0.9999
    layer.backskip.anneal = 0
    x, weight = torch.randn(5, 4), torch.randn(5, 4)
    torch.testing.assert_close(
        gradient_of(below, layer, x, weight), gradient_of(below, Layer(), x, weight), rtol=1e-2, atol=5e-3
    )


@pytest.mark.parametrize("kind", ["synthetic", "identity"])
def test_before_anything_is_learnt_the_gradient_passes_through(kind):
    below, layer = built(kind, anneal=0)
    x, weight = torch.randn(5, 4), torch.randn(5, 4)
    assert gradient_of(below, layer, x, weight).allclose(weight.t() @ x)


@pytest.mark.parametrize("kind", ["synthetic", "reinforce"])
@pytest.mark.parametrize("scale", [1.0, 2.0**10])
def test_a_loss_scale_scales_the_estimate(kind, scale):
    torch.manual_seed(1)
    x, weight = torch.randn(64, 4), torch.randn(64, 4)
    grads = []
    for factor in (1.0, scale):
        torch.manual_seed(2)
        below, layer = built(kind, anneal=1)
        gradient_of(below, layer, x, factor * weight)
        layer.backskip.set_num_updates(1)
        layer.backskip.anneal = 0
        torch.manual_seed(3)
        grads.append(gradient_of(below, layer, x, factor * weight) / factor)
    torch.testing.assert_close(grads[0], grads[1], rtol=1e-5, atol=1e-5)


def test_reinforce_by_hand():
    """Two tokens, g = (-1, -3) and (2, 2): R = 2 and -2 with RMS 2. V = 0 before training, s = 0.1.

    The estimate is -2 R/2 e / 0.1 = -20 e and 20 e.
    """
    estimator = Reinforce("layer", 2, seed=1)
    noise = torch.tensor([[[0.5, -1.0]], [[0.25, 2.0]]])
    g = torch.tensor([[[-1.0, -3.0]], [[2.0, 2.0]]])
    estimate = estimator.estimate(torch.zeros(2, 1, 2), noise, g)
    assert estimate.allclose(torch.tensor([[[-10.0, 20.0]], [[5.0, 40.0]]]))


def test_padding_gets_no_gradient():
    estimator = Reinforce("layer", 2, seed=1)
    g = torch.tensor([[[-1.0, -3.0]], [[0.0, 0.0]]])
    estimator.value.map.fill_(1)
    estimate = estimator.estimate(torch.ones(2, 1, 2), torch.ones(2, 1, 2), g)
    assert estimate[1].eq(0).all() and estimate[0].ne(0).all()


def test_padding_has_no_return_to_learn_from():
    """R = 2 and 2 with RMS 2. At x = 0 all features except the constant 1 are 0: two samples of (1, 1), and none of (1, 0)."""
    estimator = Reinforce("layer", 2, seed=1)
    g = torch.tensor([[[-1.0, -3.0]], [[-2.0, -2.0]], [[0.0, 0.0]]])
    estimator.learn(torch.zeros(3, 1, 2), g, None)
    assert (
        estimator.value.new_gram.sum() == estimator.value.new_gram[-1, -1] == 2 and estimator.value.new_cross.sum() == 2
    )
    estimator.value.new_gram = estimator.value.new_cross = None
    estimator.learn(torch.zeros(3, 1, 2), torch.zeros(3, 1, 2), None)
    assert not estimator.value.new_gram.any(), "a batch whose loss is multiplied by 0"
    estimator.learn(
        torch.tensor([[[0.0, 0.0]], [[float("nan"), 0.0]]]), torch.tensor([[[-1.0, -3.0]], [[0.0, 0.0]]]), None
    )
    assert estimator.value.new_gram.sum() == 1, "what padding holds does not matter"


def test_padding_does_not_change_the_estimate_of_words():
    estimator = Reinforce("layer", 2, seed=1)
    estimator.value.map.fill_(0.5)
    g, x, noise = torch.randn(3, 1, 2), torch.randn(3, 1, 2), torch.randn(3, 1, 2)
    padded = [torch.cat([tensor, torch.zeros_like(tensor)]) for tensor in (x, noise, g)]
    torch.testing.assert_close(estimator.estimate(*padded)[:3], estimator.estimate(x, noise, g))


def test_noise_is_another_in_each_batch_update_layer_and_process(monkeypatch):
    def noises(name="encoder.layers.1", seed=3, rank=0):
        monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
        monkeypatch.setattr(torch.distributed, "get_rank", lambda: rank)
        skip = Backskip("reinforce", name, 4, seed, anneal=0.5)
        found, truths = [], []
        for update in (0, 1, 1):  # the second call repeats an overflowed update
            skip.update = update
            skip.begin_update()
            truths.append(skip.is_true)
            found += [skip.estimator.perturb(torch.zeros(5, 4), skip.noise_seed())[1] for _ in range(2)]
        assert found[2].equal(found[4]) and found[3].equal(found[5])
        return found[:4], truths

    state = torch.get_rng_state()
    runs = [noises(), noises(rank=1), noises(name="encoder.layers.3"), noises(seed=4)]
    assert torch.get_rng_state().equal(state), "dropout of what follows would be another"
    everything = [noise for found, _ in runs for noise in found]
    assert not any(one.equal(other) for i, one in enumerate(everything) for other in everything[:i])
    assert all(one.equal(other) for one, other in zip(runs[0][0], noises()[0]))
    assert runs[0][1] == runs[1][1], "whether an update is a true one is the same in all processes"


def test_reinforce_points_along_the_gradient_on_average():
    """The mean of -(R - V) e / s is along dR: if the loss of a token is c . action, its mean gradient is along the mean of c."""
    torch.manual_seed(0)
    estimator = Reinforce("layer", 4, seed=1)
    x = torch.zeros(20_000, 4)
    action, noise = estimator.perturb(x, seed=7)
    # L = |action|^2 / 2 around x = 1: dL/da = a + 1, so R = -mean(a + 1), which rises if the action falls along (1, 1, 1, 1).
    g = action + 1
    estimator.learn(x, g, None)
    estimator.value.solve()
    mean = estimator.estimate(x, noise, g).mean(0)
    assert torch.cosine_similarity(mean, torch.ones(4), 0) > 0.98


def test_draws_depend_on_seed_layer_and_update_alone():
    def draws(name="encoder.layers.1", seed=1, anneal=0.9):
        skip = Backskip("synthetic", name, 4, seed, anneal)
        answers = []
        for update in range(200):
            skip.set_num_updates(update)
            answers.append(skip.is_true)
        return answers

    first = draws()
    assert first == draws() and first != draws(seed=2) and first != draws(name="encoder.layers.3")
    # The sum of 0.9, 0.81, ... is 9. The variance, sum of p (1 - p), is 9 - 4.26; we allow 4 standard deviations of 2.2.
    assert abs(sum(first) - 9) < 9 and not any(first[150:])
    assert all(draws(anneal=1)) and not any(draws(anneal=0))


def test_warmup_comes_before_annealing():
    skip = Backskip("synthetic", "encoder.layers.1", 4, seed=1, anneal=0, warmup=3)
    answers = []
    for update in range(6):
        skip.set_num_updates(update)
        answers.append(skip.is_true)
    assert answers == [True] * 3 + [False] * 3


def test_evaluation_and_inputs_without_gradient_are_left_alone():
    below, layer = built("reinforce", anneal=0)
    x = torch.randn(5, 4)
    assert layer(x).equal(Layer()(x)), "nothing below to give a gradient to"
    layer.eval()
    assert layer(below(x)).equal(Layer()(below(x)))
    with torch.no_grad():
        assert layer.train()(below(x)).equal(Layer()(below(x)))


def test_a_copy_skips_for_itself():
    _, layer = built("synthetic", anneal=0)
    copied = copy.deepcopy(layer)
    copied.matrix.data.zero_()
    x = torch.randn(5, 4)
    assert copied(x).equal(x) and not layer(x).equal(x) and copied.backskip is not layer.backskip
    assert copied.forward.args[0] is copied.backskip


def test_tuples_and_further_arguments_pass():
    class Two(Layer):
        def forward(self, x, scale=1.0):
            return super().forward(x, scale=scale), "attention"

    layer = Two()
    skipping_backward(layer, Backskip("synthetic", "decoder.layers.0", 4, seed=1, anneal=0))
    x = torch.randn(3, 4, requires_grad=True)
    y, attention = layer(x, scale=0.0)
    assert attention == "attention" and y.equal(x) and y.requires_grad


class TestLeastSquares:
    def test_by_hand(self):
        """x = 1, 2 and y = 3, 5: W = (3 + 10) / (1 + 4), with both sums divided by the mean square of x, 2.5."""
        model = LeastSquares(1, 1, ridge=0.0)
        model.add(torch.tensor([[1.0], [2.0]]), torch.tensor([[3.0], [5.0]]))
        model.solve()
        assert model.gram.item() == pytest.approx(5 / 2.5) and model.cross.item() == pytest.approx(13 / 2.5)
        assert model.map.item() == pytest.approx(13 / 5)
        assert model.predict(torch.tensor([10.0])).item() == pytest.approx(26)

    def test_batches_that_are_not_finite_are_ignored(self):
        model = LeastSquares(1, 1)
        model.add(torch.tensor([[float("inf")]]), torch.tensor([[1.0]]))
        model.add(torch.tensor([[1.0]]), torch.tensor([[float("nan")]]))
        model.add(torch.zeros(2, 1), torch.ones(2, 1))
        model.solve()
        assert model.map.item() == 0 and model.gram.item() == 0

    def test_half_precision_leaves_it_alone(self):
        model = Synthetic("layer", 4, 1).half().rest
        assert model.map.dtype == model.gram.dtype == torch.float32
        assert model.predict(torch.ones(2, 4, dtype=torch.half)).dtype == torch.half

    def test_batches_of_an_update_add_up(self):
        torch.manual_seed(0)
        x, y = torch.randn(8, 3), torch.randn(8, 2)
        x /= x.square().sum(1, keepdim=True).sqrt()  # so that both halves and the whole have the same scale
        whole, halves = LeastSquares(3, 2), LeastSquares(3, 2)
        whole.add(x, y)
        halves.add(x[:4], y[:4])
        halves.add(x[4:], y[4:])
        whole.solve(), halves.solve()
        torch.testing.assert_close(whole.map, halves.map)

    def test_rows_that_are_no_samples_do_not_count(self):
        """The example by hand with a third row."""
        model = LeastSquares(1, 1, ridge=0.0)
        model.add(
            torch.tensor([[1.0], [2.0], [float("inf")]]),
            torch.tensor([[3.0], [5.0], [7.0]]),
            torch.tensor([True, True, False]),
        )
        model.solve()
        assert model.gram.item() == pytest.approx(5 / 2.5) and model.map.item() == pytest.approx(13 / 5)

    def test_an_unsolvable_system_changes_nothing(self):
        """Two equal inputs without a ridge have no unique solution."""
        model = LeastSquares(2, 1, ridge=0.0)
        model.add(torch.ones(3, 2), torch.ones(3, 1))
        model.solve()
        assert model.gram.eq(1 / 2 * 3).all() and model.map.eq(0).all()
