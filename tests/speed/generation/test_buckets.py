"""Shapes of captured steps."""

import pytest

from fairseq_reservoir.speed.generation import buckets


def test_numbers_of_sentences():
    sizes = sorted({buckets.batch_size(n) for n in range(1, 257)})
    assert sizes == [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256]
    for n in range(1, 2000):
        assert n <= buckets.batch_size(n) <= max(1.5 * n, n + 1)
        if n > 32:
            assert buckets.batch_size(n) <= 1.25 * n


@pytest.mark.parametrize("tokens, expected", [(1, 16), (16, 16), (17, 32), (33, 64), (64, 64), (1000, 1024)])
def test_source_lengths(tokens, expected):
    assert buckets.source_length(tokens) == expected


def test_steps():
    assert [buckets.first_steps(source) for source in (16, 32, 64, 128)] == [32, 48, 96, 192]


@pytest.mark.parametrize(
    "batch, left, expected",
    [(128, 33, None), (128, 32, 32), (128, 1, 32), (112, 30, 32), (8, 3, None), (8, 2, 2), (2, 1, 1), (1, 1, None)],
)
def test_fewer_sentences(batch, left, expected):
    assert buckets.fewer_sentences(batch, left) == expected
