"""Fast dropout: which entries it keeps, with what probability, and that a seed decides."""

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from fairseq_reservoir.layers.fast_dropout import fast_dropout


@pytest.mark.parametrize("p", [0.1, 0.3, 0.5, 2**-16])
def test_what_is_kept_is_scaled_and_its_share_is_right(p):
    torch.manual_seed(1)
    n = 1_000_000
    y = fast_dropout(torch.ones(1000, 1000), p)
    values, counts = y.unique(return_counts=True)
    assert values[0] == 0 and len(values) == 2
    # The p that is used is a multiple of 2^-16, of which 1 / (1 - p) is the scale: the mean stays 1.
    used = round(p * 65536) / 65536
    assert values[1].item() == pytest.approx(1 / (1 - used), rel=1e-6)
    assert abs(counts[0].item() - n * used) < 5 * (n * used * (1 - used)) ** 0.5 + 1


def test_neighbours_are_independent():
    torch.manual_seed(1)
    dropped = fast_dropout(torch.ones(4_000_000), 0.5) == 0
    for distance in (1, 2, 3, 4, 8, 4096):
        both = (dropped[distance:] & dropped[:-distance]).double().mean().item()
        # A quarter, with a standard deviation of about sqrt(3 / 16 / 4e6) = 2e-4, somewhat more for overlapping pairs.
        assert abs(both - 0.25) < 2e-3


def test_the_gradient_passes_where_values_do():
    x = torch.randn(7, 9, requires_grad=True)
    y = fast_dropout(x, 0.25)
    y.sum().backward()
    assert x.grad.equal(torch.where(y == 0, 0.0, 65536 / (65536 - 16384)).to(torch.float32))


def test_a_seed_decides_and_draws_differ():
    x = torch.ones(50, 3)
    torch.manual_seed(4)
    first, second = fast_dropout(x, 0.5), fast_dropout(x, 0.5)
    torch.manual_seed(4)
    assert fast_dropout(x, 0.5).equal(first) and not first.equal(second)


def test_activation_checkpointing_draws_again_what_it_drew():
    x = torch.randn(20, 5, requires_grad=True)
    y = checkpoint(lambda t: fast_dropout(t * 2, 0.5), x, use_reentrant=False)
    y.sum().backward()
    assert x.grad.ne(0).equal(y.ne(0))


@pytest.mark.parametrize("shape", [(), (1,), (3,), (5, 0), (2, 3, 5)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
def test_any_size_and_type(shape, dtype):
    x = torch.ones(shape, dtype=dtype)
    y = fast_dropout(x, 0.5)
    assert (y.shape, y.dtype) == (x.shape, dtype) and ((y == 0) | (y == 2)).all()


def test_transposed_inputs():
    torch.manual_seed(1)
    x = torch.arange(1.0, 13).view(3, 4).t()
    y = fast_dropout(x, 0.5)
    assert ((y == 0) | (y == 2 * x)).all()


def test_everything_dropped():
    assert fast_dropout(torch.ones(9), 1.0).eq(0).all()
