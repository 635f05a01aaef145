"""Initialisers for frozen tensors. Random numbers come from ``philox``.

Every function takes ``(seed, name, shape)`` and returns a float32 NumPy array. The shape of a matrix is (fan_out, fan_in).
Only ``orthogonal`` needs torch. Initialisers in ``EXACT`` return the same bits on every machine. The others differ between machines
by about 1e-6; ``philox`` gives the reason.
"""

import math
from collections.abc import Callable

import numpy as np

from . import philox
from .philox import Floats, Shape


def orthogonal(seed: int, name: str, shape: Shape) -> Floats:
    """Orthonormal rows (W W^T = I), or orthonormal columns (W^T W = I) if W has more rows than columns.  Saxe et al., 2014.

    A standard normal matrix in float64 is decomposed into Q R, with one thread, because more threads can change the last bits. The signs of
    Q are chosen so that the diagonal of R is positive. Q is then unique and Haar-distributed (Mezzadri, 2007). W is Q or Q^T. torch
    computes the decomposition. NumPy's result would differ in the last bits.
    """
    import torch

    rows, columns = shape
    gaussian = torch.from_numpy(philox.normal(seed, name, (max(rows, columns), min(rows, columns))))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        q, r = torch.linalg.qr(gaussian)
    finally:
        torch.set_num_threads(threads)
    q = q * torch.where(torch.diagonal(r) < 0, -1.0, 1.0)
    matrix: torch.Tensor = q if rows >= columns else q.T
    found: Floats = matrix.contiguous().float().numpy()
    return found


def xavier_uniform(seed: int, name: str, shape: Shape) -> Floats:
    """U(-b, b), b = sqrt(6 / (fan_in + fan_out)).  Glorot and Bengio, 2010."""
    return philox.uniform(seed, name, shape, math.sqrt(6 / sum(shape)))


def xavier_normal(seed: int, name: str, shape: Shape) -> Floats:
    """N(0, s^2), s = sqrt(2 / (fan_in + fan_out)).  Glorot and Bengio, 2010."""
    return _normal(seed, name, shape, math.sqrt(2 / sum(shape)))


def kaiming_uniform(seed: int, name: str, shape: Shape) -> Floats:
    """U(-b, b), b = sqrt(6 / fan_in).  He et al., 2015."""
    return philox.uniform(seed, name, shape, math.sqrt(6 / shape[1]))


def kaiming_normal(seed: int, name: str, shape: Shape) -> Floats:
    """N(0, s^2), s = sqrt(2 / fan_in).  He et al., 2015."""
    return _normal(seed, name, shape, math.sqrt(2 / shape[1]))


def signed_constant(seed: int, name: str, shape: Shape) -> Floats:
    """+s or -s, s = sqrt(2 / fan_in).  Ramanujan et al., 2020."""
    return philox.sign(seed, name, shape) * constant_size(shape)


def constant_size(shape: Shape) -> np.float32:
    """The magnitude s of ``signed_constant``."""
    return np.float32(math.sqrt(2 / shape[1]))


def diagonal(seed: int, name: str, shape: Shape) -> Floats:
    """1 on the diagonal, 0 elsewhere. The matrix need not be square."""
    return np.eye(*shape, dtype=np.float32)


def zero(seed: int, name: str, shape: Shape) -> Floats:
    """Zeros."""
    return np.zeros(shape, dtype=np.float32)


def bias_uniform(seed: int, name: str, shape: Shape, fan_in: int) -> Floats:
    """U(-b, b), b = 1 / sqrt(fan_in): PyTorch's default for biases. The fan_in of a GRU is its hidden size."""
    return philox.uniform(seed, name, shape, 1 / math.sqrt(fan_in))


def embedding_normal(seed: int, name: str, shape: Shape) -> Floats:
    """N(0, 1 / columns), as fairseq draws token embeddings; shape (tokens, columns)."""
    table: Floats = (philox.normal(seed, name, tuple(shape)) / shape[1] ** 0.5).astype(np.float32)
    return table


def _normal(seed: int, name: str, shape: Shape, std: float) -> Floats:
    return (philox.normal(seed, name, shape) * std).astype(np.float32)


MATRIX_INITIALISERS: dict[str, Callable[..., Floats]] = {
    f.__name__: f
    for f in (
        orthogonal,
        xavier_uniform,
        xavier_normal,
        kaiming_uniform,
        kaiming_normal,
        signed_constant,
        diagonal,
        zero,
    )
}
EXACT = frozenset({"xavier_uniform", "kaiming_uniform", "signed_constant", "diagonal", "zero"})
