"""Initial values of frozen tensors: bounds, moments, orthogonality, exact bits."""

import hashlib
import math

import numpy as np
import pytest
import torch

from fairseq_reservoir.random_tensors import initialisers
from fairseq_reservoir.random_tensors.initialisers import EXACT, MATRIX_INITIALISERS


def sha(array):
    return hashlib.sha256(array.tobytes()).hexdigest()


@pytest.mark.parametrize("shape", [(16, 16), (8, 32), (32, 8), (1, 5), (5, 1)])
def test_orthogonal(shape):
    w = torch.from_numpy(initialisers.orthogonal(1, "w", shape)).double()
    gram = w @ w.T if shape[0] <= shape[1] else w.T @ w
    assert (gram - torch.eye(min(shape), dtype=torch.float64)).abs().max() < 1e-6


def test_orthogonal_is_the_unique_factor_with_positive_diagonal():
    # Q of A = QR with diag(R) > 0 is unique, so Q^T A must be upper triangular with a positive diagonal.
    from fairseq_reservoir.random_tensors import philox

    r = initialisers.orthogonal(1, "w", (12, 5)).T @ philox.normal(1, "w", (12, 5))
    assert np.abs(np.tril(r, -1)).max() < 1e-5 and np.diagonal(r).min() > 0


@pytest.mark.parametrize("threads", [1, 2])
def test_orthogonal_does_not_depend_on_the_number_of_threads(threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        value = initialisers.orthogonal(1, "w", (96, 160))
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    assert np.array_equal(value, initialisers.orthogonal(1, "w", (96, 160)))


# shape (out, in) = (30, 50): fan_in 50, fan_in + fan_out 80
@pytest.mark.parametrize(
    "kind, bound, std",
    [
        ("xavier_uniform", math.sqrt(6 / 80), math.sqrt(2 / 80)),
        ("xavier_normal", math.inf, math.sqrt(2 / 80)),
        ("kaiming_uniform", math.sqrt(6 / 50), math.sqrt(2 / 50)),
        ("kaiming_normal", math.inf, math.sqrt(2 / 50)),
        ("signed_constant", math.sqrt(2 / 50) * 1.000001, math.sqrt(2 / 50)),
    ],
)
def test_bounds_and_moments(kind, bound, std):
    w = MATRIX_INITIALISERS[kind](1, "w", (30, 50))
    assert w.dtype == np.float32 and w.shape == (30, 50)
    assert np.abs(w).max() <= bound
    assert abs(w.mean()) < 5 * std / math.sqrt(1500)
    assert abs(w.std() / std - 1) < 0.08


def test_diagonal_and_zero_also_where_not_square():
    assert initialisers.diagonal(1, "w", (2, 3)).tolist() == [[1, 0, 0], [0, 1, 0]]
    assert initialisers.diagonal(1, "w", (3, 2)).tolist() == [[1, 0], [0, 1], [0, 0]]
    assert initialisers.zero(1, "w", (2, 2)).tolist() == [[0, 0], [0, 0]]


def test_bias_bound_is_pytorchs():
    b = initialisers.bias_uniform(1, "b", (1000,), fan_in=16)
    assert 0.24 < np.abs(b).max() < 0.25


def test_golden_bits_of_the_exact_ones():
    values = {
        kind: sha(MATRIX_INITIALISERS[kind](1, "decoder.layers.0.fc2.weight", (24, 40))) for kind in sorted(EXACT)
    }
    assert values == GOLDEN


GOLDEN = {
    "diagonal": "c47fdaaf7440674c9a584204c818f856f6ad21c247f87896013c5d63ffba7da1",
    "kaiming_uniform": "c000ea84c8dc8415668b58a81c760b0ee8c3d63cdbbf20ea84416ae0b6a638bb",
    "signed_constant": "a293e2789a1f28a0f413414dcae0634b9c29ac9a357a2e5e484bf3a4f5952f9e",
    "xavier_uniform": "6ce24ff1cd7c82db65b7bbe5d933305acdd22f48cbf4d95f43c3bcc1982fea0c",
    "zero": "a8eac8b0d3b1fde368813438dd5ba415a796fd6dd0a2a42fb6a5a2dfb2429576",
}
