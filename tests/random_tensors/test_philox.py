"""Random tensors: golden bits, ranges, and dependence only on (seed, name)."""

import hashlib

import numpy as np
import pytest
import torch

from fairseq_reservoir.random_tensors import philox


def sha(array):
    return hashlib.sha256(array.tobytes()).hexdigest()


def test_the_generator_is_philox4x64_10():
    # Known answers published with Random123 for a counter and key of zeros and of ones. NumPy increments the counter before it draws.
    top = 2**64 - 1
    zeros = np.random.Philox(counter=[top] * 4, key=[0, 0]).random_raw(4)
    ones = np.random.Philox(counter=[top - 1, top, top, top], key=[top, top]).random_raw(4)
    assert list(zeros) == [0x16554D9ECA36314C, 0xDB20FE9D672D0FDC, 0xD7E772CEE186176B, 0x7E68B68AEC7BA23B]
    assert list(ones) == [0x87B092C3013FE90B, 0x438C3C67BE8D0224, 0x9CC7D7C69CD777B6, 0xA09CAEBF594F0BA0]


def test_words_of_one_name_are_a_prefix_of_longer_requests():
    long = philox.words(1, "a", 1001)
    assert long.dtype == np.uint32
    for n in (0, 1, 2, 7, 1000):
        assert np.array_equal(philox.words(1, "a", n), long[:n])


def test_seed_and_name_both_matter():
    streams = [tuple(philox.words(s, n, 8)) for s, n in ((1, "a"), (1, "b"), (2, "a"), (11, "a"), (1, "1a"))]
    assert len(set(streams)) == 5


def test_torch_and_numpy_global_state_do_not_matter():
    before = philox.uniform(3, "x", (5, 7), 0.5)
    torch.manual_seed(99)
    np.random.seed(99)
    torch.rand(3)
    assert np.array_equal(philox.uniform(3, "x", (5, 7), 0.5), before)


def test_uniform_by_hand():
    # top 24 bits w of each word -> (2w + 1 - 2^24) / 2^24 * bound, here in exact integer and float64 arithmetic
    w = [int(x) >> 8 for x in philox.words(5, "y", 4)]
    expected = [np.float32(np.float32(2 * v + 1 - 2**24) * np.float32(0.1 / 2**24)) for v in w]
    assert philox.uniform(5, "y", (2, 2), 0.1).flatten().tolist() == [float(e) for e in expected]


@pytest.mark.parametrize("bound", [1.0, 0.01])
def test_uniform_is_open_symmetric_and_flat(bound):
    x = philox.uniform(1, "z", (200_000,), bound) / bound
    assert np.abs(x).max() < 1
    assert abs(x.mean()) < 5 / (3 * 200_000) ** 0.5  # five standard errors of a uniform of variance 1/3
    assert abs(x.var() - 1 / 3) < 0.005
    assert np.abs(np.histogram(x, 10, (-1, 1))[0] - 20_000).max() < 5 * (200_000 * 0.1 * 0.9) ** 0.5


def test_sign_is_one_bit_of_the_stream_per_entry():
    word = int(philox.words(1, "s", 1)[0])
    assert philox.sign(1, "s", (32,)).tolist() == [1.0 if word >> i & 1 else -1.0 for i in range(32)]
    assert np.unique(philox.sign(1, "s", (3, 11))).tolist() == [-1.0, 1.0]


def test_normal_is_box_muller_of_word_pairs():
    u = (philox.words(1, "n", 4).astype(np.float64) + 0.5) / 2**32
    by_hand = [np.sqrt(-2 * np.log(u[2 * i])) * np.cos(2 * np.pi * u[2 * i + 1]) for i in range(2)]
    assert np.allclose(philox.normal(1, "n", (2,)), by_hand, rtol=1e-14, atol=0)
    x = philox.normal(1, "big", (200_000,))
    assert abs(x.mean()) < 0.012 and abs(x.std() - 1) < 0.008


def test_golden_bits():
    """These bits must never change, because checkpoints store seeds instead of weights."""
    name = "encoder.layers.1.fc1.weight"
    assert sha(philox.words(1, name, 64)) == WORDS
    assert sha(philox.uniform(1, name, (64, 32), 0.125)) == UNIFORM
    assert sha(philox.sign(1, name, (64, 32))) == SIGN


WORDS = "5913b6dabb708af957b24a7be528bd31dd42c87b07d7b8508e2f04207bc722c9"
UNIFORM = "03be74f1bcebeb7c82fbc0e9e6c6779bd341e027c908f908b97f91521582d0f3"
SIGN = "97e74192e1795c738cc974565498a92a2061a128cfe96d1c078d79415b04151d"
