"""The choice of matrix products: measured times and errors are given, so every processor tests every choice."""

import logging
from collections import Counter

import pytest
import torch
from fairseq.modules import MultiheadAttention
from torch import nn

from fairseq_reservoir.speed import matmul_precision
from fairseq_reservoir.speed.batched_products import OTHER, USUAL, other_products, usual_products
from fairseq_reservoir.speed.fast_attention import fast_attention
from fairseq_reservoir.speed.matmul_precision import Measured, choose, measure, weights_of
from tests.support.commands import RUN, load, train
from tests.support.several_processes import in_processes, train_as

WEIGHTS = Counter({(64, 48): 3, (32, 64): 1})
SETTING = torch.get_float32_matmul_precision


class Processor:
    """A product and a clock. "medium" takes ``ratio`` of the time, and its results are changed by ``other``."""

    def __init__(self, ratio, other):
        self.now, self.ratio, self.other, self.calls = 0.0, ratio, other, Counter()

    def product(self, precision, a, b):
        self.calls[precision] += 1
        # Every third call is a hundred times slower, as on a busy machine. The median does not contain it.
        busy = 100 if self.calls[precision] % 3 == 0 else 1
        self.now += busy * a.numel() * b.shape[1] * (self.ratio if precision == OTHER else 1)
        y = a @ b
        return self.other(a, b) if precision == OTHER else y

    def measure(self, **options):
        return measure(WEIGHTS, 100, product=self.product, clock=lambda: self.now, **options)


def other_order(a, b):
    """The same product with sums in another order: other bits, the same error."""
    half = a.shape[1] // 2
    return a[:, half:] @ b[half:] + a[:, :half] @ b[:half]


def in_bf16(a, b):
    return (a.bfloat16().float() @ b.bfloat16().float()).float()


@pytest.mark.parametrize("ratio, chosen", [(0.8, OTHER), (0.96, OTHER), (0.98, USUAL), (1.5, USUAL)])
def test_the_clearly_faster_product_is_chosen(ratio, chosen, caplog):
    measured = Processor(ratio, other_order).measure()
    assert measured.ratio == pytest.approx(ratio) and f"took {ratio:.2f} times as long" in measured.text
    with caplog.at_level(logging.INFO):
        assert choose(measured, None) == chosen
    assert len(caplog.messages) == 1 and measured.text in caplog.text


def test_products_in_bf16_are_not_used():
    measured = Processor(0.1, in_bf16).measure()
    assert measured.ratio == float("inf") and "products is 2e-03" in measured.text
    assert choose(measured, None) == USUAL


def test_a_product_with_nan_is_not_used():
    assert choose(Processor(0.1, lambda a, b: (a @ b) * float("nan")).measure(), None) == USUAL


def test_equal_bits_are_not_timed():
    processor = Processor(0.1, torch.matmul)
    assert processor.measure().ratio == 1 and processor.calls[USUAL] == 3 * len(WEIGHTS)


@pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() != "AVX2", reason="only with AVX2 do both settings name one product"
)
def test_this_processor_has_one_product():
    assert (
        measure(WEIGHTS, 1024) == Measured(1.0, "this processor has only one kind of matrix product")
        and SETTING() == USUAL
    )


@pytest.mark.parametrize("other, chosen", [(other_order, OTHER), (torch.matmul, USUAL), (in_bf16, USUAL)])
def test_a_resumed_run_keeps_its_choice_where_it_can(other, chosen, caplog):
    measured = Processor(1.5, other).measure(timed=False)
    assert choose(measured, OTHER) == chosen
    assert ("results will differ" in caplog.text) == (chosen == USUAL)


def test_the_largest_weights_are_measured():
    sizes = [(8, 8)] * 9 + [(16, 16), (9000, 8), (32, 8), (2, 2), (1, 1)]
    model = nn.Sequential(*(nn.Linear(*size) for size in sizes), nn.Embedding(500, 500))
    assert weights_of(model) == {(4096, 8): 1, (8, 8): 9, (32, 8): 1, (16, 16): 1}


class Probe(torch.autograd.Function):
    """x y. Records torch's setting in the forward and in the backward pass."""

    seen = []

    @staticmethod
    def forward(ctx, x, y, name):
        ctx.save_for_backward(x, y)
        ctx.name = name
        Probe.seen.append((name, SETTING()))
        return x * y

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        Probe.seen.append((f"{ctx.name} backward", SETTING()))
        return g * y, g * x, None


def two_layers(wrap):
    """Two layers of projections around attention, with a residual connection; return the gradients."""
    Probe.seen = []
    x, w = torch.tensor([2.0, 3.0], requires_grad=True), torch.tensor([5.0, 7.0], requires_grad=True)
    y = x
    for layer in range(2):
        q, k = Probe.apply(y, w, "projection"), Probe.apply(x, w, "projection")
        y = y + Probe.apply(wrap(lambda q, k, v: Probe.apply(q, k, "attention") * v, q, k, x.detach()), w, "projection")
    y.sum().backward()
    return x.grad, w.grad


def test_attention_has_the_usual_products_in_both_passes():
    expected = two_layers(lambda function, *inputs: function(*inputs))
    assert {setting for _, setting in Probe.seen} == {USUAL}
    with other_products():
        found = two_layers(usual_products)
        assert SETTING() == OTHER
    assert SETTING() == USUAL and len(Probe.seen) == 2 * 2 * 4
    assert all(setting == (USUAL if "attention" in name else OTHER) for name, setting in Probe.seen)
    assert all(a.equal(b) for a, b in zip(expected, found, strict=True))


def test_functions_without_gradients_and_with_several_outputs():
    frozen = torch.ones(2)
    with other_products():
        assert not usual_products(torch.add, frozen, frozen).requires_grad
        y, weights = usual_products(lambda q, k: (q * k, None), frozen.clone().requires_grad_(), frozen)
        assert y.requires_grad and weights is None and SETTING() == OTHER
        with pytest.raises(ZeroDivisionError):
            usual_products(lambda x: 1 / 0, frozen)
        assert SETTING() == OTHER


def test_nothing_is_changed_outside():
    with other_products(False):
        assert SETTING() == USUAL and usual_products(lambda x: x, WEIGHTS) is WEIGHTS


def test_a_backward_pass_after_the_context_changes_nothing():
    with other_products():
        y = usual_products(torch.mul, torch.ones(2, requires_grad=True), torch.ones(2))
    y.sum().backward()
    assert SETTING() == USUAL


TINY = "--arch reservoir_transformer_tiny --reservoir-encoder LT --disable-validation --criterion label_smoothed_cross_entropy".split()


@pytest.fixture
def measuring(monkeypatch):
    """Make "medium" twice as fast in every measurement; return the options of the measurements."""
    calls = []
    monkeypatch.setattr(
        matmul_precision,
        "measure",
        lambda *_, timed: calls.append(timed) or Measured(0.5 if timed else 0.0, "measured"),
    )
    return calls


def recorded(folder):
    return load(folder)["extra_state"]["fairseq_reservoir"].get("products")


def test_a_resumed_training_uses_the_products_of_its_run(toy_data, tmp_path, measuring, monkeypatch):
    fast = [*TINY, "--dropout", 0.1, "--fast"]
    whole = train(toy_data, *fast, "--max-update", 4, "--save-dir", tmp_path / "whole", begin=RUN)
    train(toy_data, *fast, "--max-update", 2, "--save-dir", tmp_path / "part", begin=RUN)
    assert measuring == [True, True] and recorded(tmp_path / "part") == OTHER
    settings, step = [], type(whole.trainer.optimizer).step
    monkeypatch.setattr(
        type(whole.trainer.optimizer), "step", lambda *a, **k: settings.append(SETTING()) or step(*a, **k)
    )
    rest = train(toy_data, *fast, "--max-update", 4, "--save-dir", tmp_path / "part", begin=RUN)
    assert measuring[2:] == [False] and settings == [OTHER] * 2 and SETTING() == USUAL
    assert recorded(tmp_path / "part") == OTHER and rest.losses == whole.losses[2:]
    # A new run from the same file measures again.
    train(toy_data, *fast, "--max-update", 1, "--reset-optimizer", "--restore-file", tmp_path / "part/checkpoint_last.pt",
          "--save-dir", tmp_path / "new", "--reset-dataloader", "--reset-meters", "--reset-lr-scheduler", begin=RUN)  # fmt: skip
    assert measuring[3:] == [True]


def test_a_run_that_began_without_it_stays_with_the_usual_products(toy_data, tmp_path, measuring):
    train(toy_data, *TINY, "--max-update", 1, "--save-dir", tmp_path, begin=RUN)
    assert recorded(tmp_path) is None
    train(toy_data, *TINY, "--fast", "--max-update", 2, "--save-dir", tmp_path, begin=RUN)
    assert recorded(tmp_path) == USUAL and not measuring


@pytest.mark.parametrize("flags", [(), ("--fast", "--bf16")])
def test_other_trainings_measure_nothing(toy_data, measuring, flags):
    trained = train(toy_data, *TINY, *flags, "--max-update", 1, "--no-save", begin=RUN)
    assert trained.trainer.products is None and not measuring


def test_a_setting_of_the_program_is_kept(toy_data, measuring):
    torch.set_float32_matmul_precision("high")
    try:
        trained = train(toy_data, *TINY, "--fast", "--max-update", 1, "--no-save", begin=RUN)
        assert trained.trainer.products is None and not measuring and SETTING() == "high"
    finally:
        torch.set_float32_matmul_precision(USUAL)


@pytest.mark.parametrize("options", [{}, {"add_bias_kv": True}, {"dropout": 0.5}])
@pytest.mark.parametrize("weights", [True, False])
def test_attention_computes_the_same_inside(options, weights):
    torch.manual_seed(0)
    attention = fast_attention(MultiheadAttention(8, 2, self_attention=True, **options), weights_unread=False)
    results = []
    for other in (False, True):
        torch.manual_seed(1)
        x = torch.linspace(-1, 1, 5 * 3 * 8).view(5, 3, 8).requires_grad_()
        with other_products(other):
            y, shares = attention(x, x, x, need_weights=weights)
            (y * y).sum().backward()
        results.append((y, x.grad, *(p.grad for p in attention.parameters())))
        assert (shares is None) != weights
        attention.zero_grad()
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b)


def _choice_of(rank, folder, data):
    ratio = 0.5 if rank == 0 else 0.9
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matmul_precision, "measure", lambda *_, timed: Measured(ratio, "measured"))
        both = train_as(rank, 2, folder / "both", data, *TINY, "--fast", "--max-update", 1, "--no-save", begin=RUN)
        ratio = 0.5 if rank == 0 else float("inf")
        one = train_as(rank, 2, folder / "one", data, *TINY, "--fast", "--max-update", 1, "--no-save", begin=RUN)
    return both.trainer.products, one.trainer.products


def test_ranks_agree_and_one_that_cannot_decides(toy_data, tmp_path):
    assert in_processes(2, _choice_of, tmp_path, toy_data) == [(OTHER, USUAL)] * 2
