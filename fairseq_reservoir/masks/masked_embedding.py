"""Embedding with random vectors and a learned mask, and the output projection that is tied to an embedding."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .masked_linear import all_rows
from .masked_weight import MaskedWeight


class ComputedEmbedding(nn.Module):
    """Mix-in that turns a module with a computed ``weight`` into an embedding; tokens: (...), int64 -> (..., embedding_dim).

    The row of ``padding_idx`` is always 0.
    """

    def __init__(
        self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None, *args: Any, **options: Any
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, *args, zero_row=padding_idx, **options)
        self.num_embeddings, self.embedding_dim, self.padding_idx = num_embeddings, embedding_dim, padding_idx

    def forward(self, tokens: Tensor) -> Tensor:
        weight: Any = self.weight
        return F.embedding(tokens, weight, self.padding_idx)

    @torch.no_grad()
    def folded(self) -> nn.Embedding:
        """Return an ordinary embedding that stores the computed ``weight``."""
        weight: Any = self.weight
        embedding: nn.Embedding = nn.Embedding.from_pretrained(weight.clone(), padding_idx=self.padding_idx)
        return embedding.train(self.training)

    def extra_repr(self) -> str:
        return f"{self.num_embeddings}, {self.embedding_dim}, padding_idx={self.padding_idx}, {super().extra_repr()}"


class MaskedEmbedding(ComputedEmbedding, MaskedWeight):
    """Embedding with the vectors g (W * M); tokens: (...), int64 -> (..., embedding_dim).

    The arguments are num_embeddings, embedding_dim, padding_idx, keep_ratio and the keyword arguments of ``MaskedWeight``.
    ``MaskedWeight`` describes W, M, g and the trained parameters. fan_in is embedding_dim.
    """


class TiedProjection(nn.Module):
    """Output projection y = x E^T with the weight E of an embedding; x: (..., embedding_dim), y: (..., num_embeddings).

    The projection has no tensors of its own. The embedding is registered elsewhere in the model.
    """

    is_product = True  # as in ``ComputedLinear``

    def __init__(self, embedding: nn.Module):
        super().__init__()
        self._embedding = (embedding,)

    @property
    def embedding(self) -> nn.Module:
        return self._embedding[0]

    @property
    def weight(self) -> Tensor:
        weight = self.embedding.weight
        assert isinstance(weight, Tensor)
        return weight

    def forward(self, x: Tensor) -> Tensor:
        return all_rows(x, self.weight)
