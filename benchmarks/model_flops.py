"""FLOPs of a training update of an encoder-decoder Transformer, and the measured peak of a device."""

import time

import numpy as np
import torch


def update_flops(width, ffn, encoder_layers, decoder_layers, words, source, target):
    """FLOPs of the model in the forward and backward pass of some sentences. Padding does not count.

    A product with a matrix of n parameters takes 6n FLOPs per token: 2n forward, 2n for the gradient of the input, and 2n for the
    gradient of the matrix. The scores and the weighted sum of attention take 12 FLOPs per channel and pair of tokens. Causal
    self-attention counts only the pairs that it uses. Everything else, such as LayerNorm, softmax or the selection of masks, is not
    counted.

    Args:
        width, ffn: sizes of the layers.
        encoder_layers, decoder_layers: number of layers.
        words: size of the output layer.
        source, target: lengths of the sentences in tokens, (sentences,) each.
    """
    source, target = np.asarray(source, dtype=np.float64), np.asarray(target, dtype=np.float64)
    feed_forward = 2 * width * ffn
    on_source = encoder_layers * (4 * width**2 + feed_forward) + decoder_layers * 2 * width**2  # keys and values
    on_target = decoder_layers * (6 * width**2 + feed_forward) + width * words
    pairs = encoder_layers * (source**2).sum()
    pairs += decoder_layers * ((target * (target + 1) / 2).sum() + (source * target).sum())
    return float(6 * (on_source * source.sum() + on_target * target.sum()) + 12 * width * pairs)


def measured_peak(device, size=8192, repeats=10):
    """FLOP/s of a bf16 matrix product of random matrices of ``size`` x ``size``: the mean of ``repeats`` products after three others."""
    a, b = (torch.randn(size, size, device=device).bfloat16() for _ in range(2))
    for _ in range(3):
        a @ b
    if device == "cuda":
        torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(repeats):
        a @ b
    if device == "cuda":
        torch.cuda.synchronize()
    return 2 * size**3 * repeats / (time.perf_counter() - began)
