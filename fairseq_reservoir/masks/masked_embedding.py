"""Embedding with random vectors and a learned mask, and the output projection tied to it."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .masked_linear import all_rows
from .masked_weight import MaskedWeight


def ordinary_embedding(weight: Tensor, padding_idx: int | None, training: bool) -> nn.Embedding:
    """Create an ``nn.Embedding`` with a copy of ``weight``."""
    embedding: nn.Embedding = nn.Embedding.from_pretrained(weight.clone(), padding_idx=padding_idx)
    return embedding.train(training)


class MaskedEmbedding(MaskedWeight):
    """Embedding with the vectors g (W * M); tokens: (...), int64 -> (..., embedding_dim).

    The row of ``padding_idx`` is 0 in W, so the padding vector is always 0. ``MaskedWeight`` describes W, M, g, the trained
    parameters and the other arguments; fan_in is ``embedding_dim``.
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        keep_ratio: float = 0.5,
        **options: Any,
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, keep_ratio, zero_row=padding_idx, **options)
        self.num_embeddings, self.embedding_dim, self.padding_idx = num_embeddings, embedding_dim, padding_idx

    def forward(self, tokens: Tensor) -> Tensor:
        return F.embedding(tokens, self.weight, self.padding_idx)

    @torch.no_grad()
    def folded(self) -> nn.Embedding:
        """Return an ordinary embedding with the masked weight."""
        return ordinary_embedding(self.weight, self.padding_idx, self.training)

    def extra_repr(self) -> str:
        sizes = f"{self.num_embeddings}, {self.embedding_dim}, padding_idx={self.padding_idx}"
        return f"{sizes}, {self.choices}"


class TiedProjection(nn.Module):
    """Output projection y = x E^T with the weight E of an embedding; x: (..., embedding_dim), y: (..., num_embeddings).

    The projection has no tensors of its own. The embedding is registered elsewhere in the model.
    """

    # The output is x times the transposed ``weight`` and nothing else, so that --fast can compute it slice by slice.
    is_product = True

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
