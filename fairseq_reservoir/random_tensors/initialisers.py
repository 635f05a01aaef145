"""Initialisers for frozen tensors. Random numbers come from ``philox``.

Every function takes ``(seed, name, shape)`` and returns a float32 tensor. The shape of a matrix is (fan_out, fan_in).
Initialisers in ``EXACT`` return the same bits on every machine. The others differ between machines by about 1e-6; ``philox``
gives the reason.
"""

import math
from collections.abc import Callable

import torch

from . import philox
from .philox import Shape


def orthogonal(seed: int, name: str, shape: Shape) -> torch.Tensor:
    """Orthonormal rows (W W^T = I), or orthonormal columns (W^T W = I) if W has more rows than columns.  Saxe et al., 2014.

    A standard normal matrix in float64 is decomposed into Q R, with one thread, because more threads can change the last bits. The
    signs of Q are chosen so that the diagonal of R is positive. Q is then unique and Haar-distributed (Mezzadri, 2007). W is Q or Q^T.
    """
    rows, columns = shape
    gaussian: torch.Tensor = philox.normal(seed, name, (max(rows, columns), min(rows, columns)))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        q, r = torch.linalg.qr(gaussian)
    finally:
        torch.set_num_threads(threads)
    q = q * torch.where(torch.diagonal(r) < 0, -1.0, 1.0)
    matrix: torch.Tensor = q if rows >= columns else q.T
    return matrix.contiguous().float()


def xavier_uniform(seed: int, name: str, shape: Shape) -> torch.Tensor:
    """U(-b, b), b = sqrt(6 / (fan_in + fan_out)).  Glorot and Bengio, 2010."""
    return philox.uniform(seed, name, shape, math.sqrt(6 / sum(shape)))


def xavier_normal(seed: int, name: str, shape: Shape) -> torch.Tensor:
    """N(0, s^2), s = sqrt(2 / (fan_in + fan_out)).  Glorot and Bengio, 2010."""
    return _normal(seed, name, shape, math.sqrt(2 / sum(shape)))


def kaiming_uniform(seed: int, name: str, shape: Shape) -> torch.Tensor:
    """U(-b, b), b = sqrt(6 / fan_in).  He et al., 2015."""
    return philox.uniform(seed, name, shape, math.sqrt(6 / shape[1]))


def kaiming_normal(seed: int, name: str, shape: Shape) -> torch.Tensor:
    """N(0, s^2), s = sqrt(2 / fan_in).  He et al., 2015."""
    return _normal(seed, name, shape, math.sqrt(2 / shape[1]))


def signed_constant(seed: int, name: str, shape: Shape) -> torch.Tensor:
    """+s or -s, s = sqrt(2 / fan_in).  Ramanujan et al., 2020."""
    return philox.sign(seed, name, shape) * constant_size(shape)


def constant_size(shape: Shape) -> torch.Tensor:
    """The magnitude s of ``signed_constant``, float32."""
    return torch.tensor(math.sqrt(2 / shape[1]), dtype=torch.float32)


def diagonal(seed: int, name: str, shape: Shape) -> torch.Tensor:
    """1 on the diagonal, 0 elsewhere. The matrix need not be square."""
    return torch.eye(*shape)


def zero(seed: int, name: str, shape: Shape) -> torch.Tensor:
    """Zeros."""
    return torch.zeros(shape)


def bias_uniform(seed: int, name: str, shape: Shape, fan_in: int) -> torch.Tensor:
    """U(-b, b), b = 1 / sqrt(fan_in): PyTorch's default for biases. The fan_in of a GRU is its hidden size."""
    return philox.uniform(seed, name, shape, 1 / math.sqrt(fan_in))


def embedding_normal(seed: int, name: str, shape: Shape) -> torch.Tensor:
    """N(0, 1 / columns), as fairseq draws token embeddings; shape (tokens, columns)."""
    drawn: torch.Tensor = philox.normal(seed, name, shape) / shape[1] ** 0.5
    return drawn.float()


def _normal(seed: int, name: str, shape: Shape, std: float) -> torch.Tensor:
    drawn: torch.Tensor = philox.normal(seed, name, shape)
    return (drawn * std).float()


MATRIX_INITIALISERS: dict[str, Callable[..., torch.Tensor]] = {
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
