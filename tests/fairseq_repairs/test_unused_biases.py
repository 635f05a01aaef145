"""The unused biases of dynamic convolutions are initialised."""

import pytest
import torch
from fairseq.modules import DynamicConv_scripatable


@pytest.mark.parametrize("is_repaired", [True, False])
def test_unused_biases_are_0(is_repaired):
    convolution = DynamicConv_scripatable(8, kernel_size=3, num_heads=2)
    torch.nn.init.constant_(convolution.conv_bias, float("nan"))  # as memory may be
    reset = DynamicConv_scripatable.reset_parameters
    (reset if is_repaired else reset.__wrapped__)(convolution)
    assert convolution.conv_bias.eq(0).all() if is_repaired else convolution.conv_bias.isnan().all()
