"""``--rezero``: residual connections with one learned gain per layer, without LayerNorms (Bachlechner et al., 2020, "ReZero").

Each sublayer f of a layer computes x + g * dropout(f(x)). All sublayers of the layer share the number g, which is 0 at the start. A frozen
layer with a fixed g = 0 would be the identity, so g is also trained in frozen layers.
"""

from typing import Any

import torch
from fairseq.modules.transformer_layer import TransformerDecoderLayerBase, TransformerEncoderLayerBase
from torch import Tensor, nn

from ..errors import InputError
from .base import Slot, Sublayer
from .replace import MixedIn

# LayerNorms of fairseq's layers. An encoder layer has no attention to a source.
_NORMS = ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm")


class _RezeroLayer(MixedIn):
    """Mix-in that gives fairseq's layer a gain in place of its LayerNorms."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.rezero_gain = _initial_gain()
        for name in _NORMS:
            if getattr(self, name, None) is not None:
                setattr(self, name, nn.Identity())

    def residual_connection(self, x: Tensor, residual: Tensor) -> Tensor:
        return residual + self.rezero_gain * x


class RezeroEncoderLayer(_RezeroLayer, TransformerEncoderLayerBase):
    """fairseq's encoder layer with a gain in place of LayerNorms."""


class RezeroDecoderLayer(_RezeroLayer, TransformerDecoderLayerBase):
    """fairseq's decoder layer with a gain in place of LayerNorms."""


LAYERS = {"encoder": RezeroEncoderLayer, "decoder": RezeroDecoderLayer}


def use_rezero(slot: Slot) -> None:
    """Give a layer of this package or of a user a gain in place of the LayerNorms of its sublayers, in place.

    Raises:
        InputError: a sublayer defines its own ``forward``, so ``Sublayer.forward`` cannot apply the gain.
    """
    for name, sublayer in slot.named_children():
        if type(sublayer).forward is not Sublayer.forward:
            raise InputError(
                f"--rezero: the sublayer {name} has its own forward ({type(sublayer).__name__}), which does not apply the gain; remove the "
                "flag, or define only transform"
            )
        sublayer.layer_norm = nn.Identity()
    slot.rezero_gain = _initial_gain()


def _initial_gain() -> nn.Parameter:
    return nn.Parameter(torch.zeros(1))
