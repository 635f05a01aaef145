"""Tensors of one captured step, all of fixed shapes: caches of the decoder, beams, and finished hypotheses."""

from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor

from .buckets import Sizes


@dataclass
class LayerCache:
    """Cached keys and values of one layer. If a layer has no cross-attention or no self-attention, the tensors of that attention are None.

    Attributes:
        keys, values: keys and values of generated tokens, (batch, heads, steps, beam, head_dim). At step t, the hypothesis in beam
            i writes entry [b, h, t, i]. Entries are never moved.
        source_keys, source_values: keys and values of the source, (batch, heads, source, head_dim).
    """

    keys: Tensor | None = None
    values: Tensor | None = None
    source_keys: Tensor | None = None
    source_values: Tensor | None = None


@dataclass
class State:
    """State of a beam search with fixed shapes. Integers are int64, scores are float32.

    Attributes:
        step: number of the next step, (1,).
        last_step: step at which every hypothesis must end, (1,).
        token: last token of each beam, (batch, beam).
        score: sum of the log probabilities of each beam, (batch, beam).
        ancestors: (batch, beam, steps). The hypothesis that is now in beam i of sentence b was in beam ``ancestors[b, i, t]`` at step t.
            Entries of future steps are -1.
        finished: whether each sentence is finished, (batch,), bool.
        unfinished: number of sentences that are not finished, (1,).
        parent: (steps, batch, beam). The hypothesis of sentence b that is in beam i after step t was in beam ``parent[t, b, i]`` before
            step t.
        chosen: token that is appended to each beam at each step, (steps, batch, beam).
        total: score of each beam after each step, (steps, batch, beam).
        count: number of finished hypotheses of each sentence, (batch,).
        end_step: step at which each finished hypothesis ended, (batch, beam + 1). Hypotheses that ended first come first.
        end_beam: beam of each finished hypothesis before it ended, (batch, beam + 1).
        end_score: score of each finished hypothesis, (batch, beam + 1). The last column of these three tensors is never read.
        source_padding: mask of the source's padding, (batch, source), bool.
        layers: caches of the layers.
    """

    step: Tensor
    last_step: Tensor
    token: Tensor
    score: Tensor
    ancestors: Tensor
    finished: Tensor
    unfinished: Tensor
    parent: Tensor
    chosen: Tensor
    total: Tensor
    count: Tensor
    end_step: Tensor
    end_beam: Tensor
    end_score: Tensor
    source_padding: Tensor
    layers: list[LayerCache]

    def begin(self, sentences: int, token: int, last_step: int) -> None:
        """Start a batch of ``sentences`` sentences. Every hypothesis begins with ``token``. Other rows are padding and count as finished.

        Keys and values are set to 0, because a NaN of an earlier batch would cause a NaN even with an attention weight of 0.
        """
        self.step.zero_()
        self.last_step.fill_(last_step)
        self.token.fill_(token)
        # At the first step all beams are equal, so only the first is used, as in fairseq.
        self.score.fill_(-torch.inf)
        self.score[:, 0] = 0
        self.ancestors.fill_(-1)
        self.finished.zero_()
        self.finished[sentences:] = True
        self.unfinished.fill_(sentences)
        self.count.zero_()
        for layer in self.layers:
            for cache in (layer.keys, layer.values):
                if cache is not None:
                    cache.zero_()

    def put_source(self, padding: Tensor, memory: list[tuple[Tensor, Tensor] | None]) -> None:
        """Store the padding mask of a batch's source, and the keys and values of the source.

        Args:
            padding: (sentences, tokens), bool.
            memory: keys and values of each layer, (sentences, heads, tokens, head_dim); None for a layer without attention to the source.
        """
        sentences, tokens = padding.shape
        self.source_padding.fill_(True)
        self.source_padding[:sentences, :tokens] = padding
        # If all keys of a row were padding, its softmax would be NaN.
        self.source_padding[sentences:, 0] = False
        for layer, projected in zip(self.layers, memory, strict=True):
            if projected is not None:
                for cache, tensor in zip((layer.source_keys, layer.source_values), projected, strict=True):
                    assert cache is not None
                    cache.zero_()
                    cache[:sentences, :, :tokens] = tensor

    def put_rows(self, other: "State", rows: Tensor, sentences: int) -> None:
        """Continue the search of the given rows of ``other``.

        Args:
            other: a state of the same source length, with at most as many steps as this one.
            rows: indices of rows of ``other``, (batch,), int64.
            sentences: number of rows that are not padding. These rows come first.
        """
        steps = other.ancestors.size(2)
        self.step.copy_(other.step)
        self.last_step.copy_(other.last_step)
        for name in ("token", "score", "finished", "count", "end_step", "end_beam", "end_score", "source_padding"):
            getattr(self, name).copy_(getattr(other, name).index_select(0, rows))
        self.ancestors.fill_(-1)
        self.ancestors[:, :, :steps] = other.ancestors.index_select(0, rows)
        for name in ("parent", "chosen", "total"):
            getattr(self, name)[:steps] = getattr(other, name).index_select(1, rows)
        self.finished[sentences:] = True
        self.unfinished.copy_((~self.finished).sum().view(1))
        for mine, theirs in zip(self.layers, other.layers, strict=True):
            for name in ("keys", "values"):
                if (cache := getattr(mine, name)) is not None:
                    cache[:, :, steps:] = 0
                    cache[:, :, :steps] = getattr(theirs, name).index_select(0, rows)
            for name in ("source_keys", "source_values"):
                if (cache := getattr(mine, name)) is not None:
                    cache.copy_(getattr(theirs, name).index_select(0, rows))

    def bytes(self) -> int:
        """Return the memory of all tensors, in bytes."""
        own = [getattr(self, field.name) for field in fields(self) if field.name != "layers"]
        caches = [tensor for layer in self.layers for tensor in vars(layer).values() if tensor is not None]
        return sum(tensor.numel() * tensor.element_size() for tensor in (*own, *caches))


def new_state(sizes: Sizes, beam: int, caches: list[LayerCache], device: Any) -> State:
    """Allocate a state with the caches that ``DecoderStep.new_caches`` returns."""
    whole = {"dtype": torch.int64, "device": device}
    batch, steps = sizes.batch, sizes.steps
    return State(
        step=torch.zeros(1, **whole),
        last_step=torch.zeros(1, **whole),
        token=torch.zeros(batch, beam, **whole),
        score=torch.zeros(batch, beam, device=device),
        ancestors=torch.zeros(batch, beam, steps, **whole),
        finished=torch.zeros(batch, dtype=torch.bool, device=device),
        unfinished=torch.zeros(1, **whole),
        parent=torch.zeros(steps, batch, beam, **whole),
        chosen=torch.zeros(steps, batch, beam, **whole),
        total=torch.zeros(steps, batch, beam, device=device),
        count=torch.zeros(batch, **whole),
        end_step=torch.zeros(batch, beam + 1, **whole),
        end_beam=torch.zeros(batch, beam + 1, **whole),
        end_score=torch.zeros(batch, beam + 1, device=device),
        source_padding=torch.zeros(batch, sizes.source, dtype=torch.bool, device=device),
        layers=caches,
    )
