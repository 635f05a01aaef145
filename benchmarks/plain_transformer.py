"""A plain PyTorch encoder-decoder Transformer and its training step, as a user without fairseq may write them.

The layers are those of fairseq's ``transformer`` with its default flags: LayerNorm after each block, ReLU, sinusoidal positions,
dropout of the embeddings and of each block's output, and one embedding for both languages and the output. Unlike fairseq it has no
padding masks, because the benchmark's batch has no padding, and it logs nothing. Weights are in float32, and autocast computes in bf16.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn


class Attention(nn.Module):
    """Multi-head attention of x (sentences, length, width) to ``memory``, or to itself."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x, memory=None, causal=False):
        memory = x if memory is None else memory
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (self.q(x), self.k(memory), self.v(memory))
        )
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2).flatten(2))


class Layer(nn.Module):
    """A layer of the encoder, or of the decoder if ``crossed``."""

    def __init__(self, width, ffn, heads, dropout, crossed):
        super().__init__()
        self.attention = Attention(width, heads)
        self.cross = Attention(width, heads) if crossed else None
        self.fc1, self.fc2 = nn.Linear(width, ffn), nn.Linear(ffn, width)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3 if crossed else 2))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, memory=None):
        x = self.norms[0](x + self.dropout(self.attention(x, causal=self.cross is not None)))
        if self.cross is not None:
            x = self.norms[1](x + self.dropout(self.cross(x, memory)))
        return self.norms[-1](x + self.dropout(self.fc2(F.relu(self.fc1(x)))))


class PlainTransformer(nn.Module):
    """Encoder-decoder with tied embeddings.

    Args:
        words: size of the dictionary.
        width, ffn, heads: sizes of the layers.
        encoder, decoder: numbers of layers.
        dropout: probability of dropout.
        longest: number of positions.
    """

    def __init__(self, words, width, ffn, heads, encoder, decoder, dropout=0.2, longest=256):
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        nn.init.normal_(self.embedding.weight, std=width**-0.5)
        self.dropout, self.scale = nn.Dropout(dropout), math.sqrt(width)
        self.encoder = nn.ModuleList(Layer(width, ffn, heads, dropout, crossed=False) for _ in range(encoder))
        self.decoder = nn.ModuleList(Layer(width, ffn, heads, dropout, crossed=True) for _ in range(decoder))
        self.register_buffer("positions", sinusoidal(longest, width))

    def embed(self, tokens):
        return self.dropout(self.scale * self.embedding(tokens) + self.positions[: tokens.shape[1]])

    def forward(self, source, previous, target):
        """Label-smoothed loss per token, for tokens (sentences, length): source, target shifted to the right, and target."""
        with torch.autocast(source.device.type, dtype=torch.bfloat16):
            memory, x = self.embed(source), self.embed(previous)
            for layer in self.encoder:
                memory = layer(memory)
            for layer in self.decoder:
                x = layer(x, memory)
            logits = F.linear(x, self.embedding.weight)
        return F.cross_entropy(logits.flatten(0, 1).float(), target.flatten(), label_smoothing=0.1)


def sinusoidal(length, width):
    """Sinusoidal positions (length, width) of "Attention Is All You Need", sines first."""
    angles = torch.arange(length)[:, None] * torch.exp(torch.arange(width // 2) * (-2 * math.log(10000) / width))
    return torch.cat([angles.sin(), angles.cos()], 1)


class PlainStep:
    """Training step of a ``PlainTransformer`` with Adam and clipping.

    Args:
        model: the model, on its device.
        source, target: tokens (sentences, length) of the batch, on the device.
        mode: mode of ``torch.compile``, or None for eager mode.
    """

    def __init__(self, model, source, target, mode=None):
        self.model, self.source, self.target, self.mode = model.train(), source, target, mode
        self.previous = target.roll(1, dims=1)
        self.stream = torch.cuda.current_stream() if source.is_cuda else None
        self.optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.98), fused=True)
        self.loss = torch.compile(model, mode=mode, dynamic=False) if mode else model

    def step(self):
        """Train one update. Return its loss, without synchronising with the device."""
        with torch.cuda.stream(self.stream):  # does nothing without a stream
            if self.mode:
                torch.compiler.cudagraph_mark_step_begin()
            loss = self.loss(self.source, self.previous, self.target)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()
