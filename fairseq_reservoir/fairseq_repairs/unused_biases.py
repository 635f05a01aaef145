"""Repair of the dynamic convolutions of fairseq's lightconv models."""

from fairseq.modules import DynamicConv_scripatable
from torch import nn

from .repair import repair, wrap


@repair("unused-biases")
def initialise_unused_biases():
    """Set the unused biases of dynamic convolutions to 0 when a lightconv model is built.

    fairseq creates a bias that the convolution does not use, and does not initialise it. It contains the bytes that were in memory before.
    Two models with the same seed differ in it. If it is frozen, the ranks of a training differ in a frozen tensor, and refuse to train.
    """

    def reset_parameters(original, convolution):
        original(convolution)
        nn.init.zeros_(convolution.conv_bias)

    wrap(DynamicConv_scripatable, "reset_parameters", reset_parameters)
