"""Convert drawn NumPy arrays to torch tensors."""

from collections.abc import Callable
from typing import Any

import torch

from .philox import Shape


def drawn(draw: Callable[..., Any], seed: int, name: str, shape: Shape, *further: float) -> torch.Tensor:
    """Return the array of ``draw(seed, name, shape, *further)`` as a tensor on the CPU.

    Inside ``torch.device("meta")``, nothing is drawn. The tensor then has a shape but no values.
    """
    if torch.get_default_device().type == "meta":
        return torch.empty(shape)
    return torch.from_numpy(draw(seed, name, shape, *further))
