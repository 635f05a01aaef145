"""Cache of the outputs of a frozen prefix, so that the layers of the prefix run only once for each batch."""

import hashlib
import logging
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import InputError
from ..layers.replace import adopt
from .frozen_prefix import FrozenPrefix
from .known_padding import host_copy

logger = logging.getLogger(__name__)


class Memory:
    """Memory store of the cached batches of this process, up to ``limit`` bytes."""

    def __init__(self, limit: int) -> None:
        self.limit, self.used, self.full = limit, 0, False
        self.batches: dict[bytes, Tensor] = {}

    def clear(self) -> None:
        """Drop all batches."""
        self.batches.clear()
        self.used, self.full = 0, False

    def get(self, key: bytes) -> Tensor | None:
        """Return the cached tensor of a key, on the CPU; None if the key is not cached."""
        return self.batches.get(key)

    def pop(self, key: bytes) -> Tensor | None:
        """Remove the cached tensor of a key and return it; None if the key is not cached."""
        found = self.batches.pop(key, None)
        self.used -= found.nbytes if found is not None else 0
        return found

    def put(self, key: bytes, x: Tensor) -> None:
        """Store the tensor itself, not a copy, if there is room for it."""
        if self.used + x.nbytes <= self.limit:
            self.batches[key] = x
            self.used += x.nbytes
        elif not self.full:
            self.full = True
            logger.warning(
                "--freeze-cache-mib %d: the cache is full; batches that are not cached are computed in every epoch",
                self.limit >> 20,
            )


class PrefixCache:
    """Cache of the outputs h = prefix(tokens), (time, batch, dim). Without ``dtype``, a cached h has the bits that the layers compute.

    The key of a batch is the SHA-256 of its padded tokens and of the prefix. Whole batches are cached, because the last bits of a
    sentence's h depend on the length to which the sentence is padded. Only training uses the cache. Validation and generation run all
    layers. fairseq's encoders can return the outputs of all layers, but no translation model reads these outputs. With the cache, the
    outputs of all layers of the prefix except the last are None.

    When a schedule extends the prefix, the cached outputs of the smaller prefix are used. Only the added layers run, once per batch, and
    their output replaces the cached output. With a ``dtype`` the cache is emptied instead, because the new output would be computed from
    a rounded output and rounded again. In a resumed training, the new output would be rounded only once.

    Args:
        prefix: the frozen prefix of the encoder.
        store: the store of the cached batches.
        dtype: dtype to which a float32 h is rounded; None for no rounding. The layers above get the rounded h, even in the update that
            computes h.

    Raises:
        InputError: during training, a parameter of the prefix is trained, or the prefix draws random numbers.
    """

    def __init__(self, prefix: FrozenPrefix, store: Memory, dtype: torch.dtype | None = None) -> None:
        self.prefix, self.store, self.dtype = prefix, store, dtype
        self.hash: str | None = None
        # Hash and depth of each smaller, earlier prefix with cached outputs, the smallest first.
        self.smaller: list[tuple[str | None, int]] = []
        self.hits = self.grown = self.misses = 0  # batches that were cached, cached for a smaller prefix, or not cached
        self.size_logged = False
        self.idle_epochs = 0  # consecutive epochs without a cached batch
        self._batch: bytes | None = None
        self._found: Tensor | None = None
        self._depth = 0  # number of layers that have computed the found output
        self._random: list[Tensor] = []
        encoder = prefix.encoder
        encoder.layers = layers = adopt(CachedLayers, encoder.layers)
        layers.prefix_cache = self
        encoder.register_forward_pre_hook(self.begin_batch, with_kwargs=True)
        encoder.register_forward_hook(self.end_batch, with_kwargs=True, always_call=True)

    def __deepcopy__(self, memo: Any) -> "PrefixCache":
        """Return this cache itself. fairseq copies the model for the moving average, and the copied model never uses the cache."""
        return self

    def follow(self, depth_before: int) -> None:
        """Adapt the cache to a change of the prefix's depth from ``depth_before`` to its current value."""
        continues = 0 < depth_before < self.prefix.depth and self.dtype is None
        self.smaller = [*self.smaller, (self.hash, depth_before)] if continues else []
        self.hash = self.prefix.hash() if self.prefix.depth else None
        self.idle_epochs = 0
        if self.hash and not continues:
            self.store.clear()

    def begin_batch(self, encoder: nn.Module, args: tuple, kwargs: dict) -> None:
        """Forward pre-hook of the encoder: find the cached output of the batch."""
        tokens, given = _arguments(*args, **kwargs)
        if self.hash is None or not encoder.training or given is not None:
            return
        copy = host_copy(tokens)
        content = f"{tuple(tokens.shape)} {tokens.dtype}".encode()
        content += (tokens.cpu() if copy is None else copy).numpy().tobytes()
        self._batch = _key(self.hash, content)
        self._found, self._depth = self._find(content)
        self._random = [] if self._depth == self.prefix.depth else _random_state()

    def end_batch(self, encoder: nn.Module, args: tuple, kwargs: dict, result: Any) -> None:
        """Forward hook of the encoder, which also runs after errors. Set the outputs of layers inside the prefix to None."""
        was_cached = self._batch is not None
        self._batch = self._found = None
        for name, place in (("encoder_states", 1), ("fc_results", 0)):
            if was_cached and result and result[name]:  # fairseq fills these lists only on request
                result[name][place:place] = [None] * (self.prefix.depth - 1)

    def layers(self, all_layers):
        """Return the layers that the encoder runs. If the cache is used for the batch, one function replaces the layers of the prefix."""
        if self._batch is None:
            return iter(all_layers)
        depth = self.prefix.depth
        return iter([partial(self._prefix, all_layers[:depth]), *all_layers[depth:]])

    def _find(self, content):
        """Return the cached output of the batch, and the depth of the prefix that computed it; (None, 0) if nothing is cached.

        An output of a smaller prefix is removed from the cache.
        """
        found = self.store.get(self._batch)
        if found is not None:
            return found, self.prefix.depth
        for smaller, depth in reversed(self.smaller):
            found = self.store.pop(_key(smaller, content))
            if found is not None:
                return found, depth
        return None, 0

    def _prefix(self, layers, x, encoder_padding_mask):
        if self._found is not None:
            x = self._found.to(x.device, x.dtype, copy=True)
        if self._depth == self.prefix.depth:
            self.hits += 1
            return x
        self.grown += self._depth > 0
        self.misses += self._depth == 0
        for layer in layers[self._depth :]:
            x = layer(x, encoder_padding_mask=encoder_padding_mask)
            x = x[0] if isinstance(x, tuple) else x
        if x.requires_grad:
            raise InputError("--freeze-cache: a parameter in or below the cached layers is trained; remove the flag")
        if not all(map(torch.equal, self._random, _random_state())):
            raise InputError(f"--freeze-cache: {self.prefix} draws random numbers; remove the flag")
        rounded = self.dtype if self.dtype and x.dtype == torch.float32 else x.dtype
        # Copies keep the memory layout, because the rounding of sums depends on it.
        cached = x.detach().to("cpu", rounded, copy=True)
        self.store.put(self._batch, cached)
        return cached.to(x.device, x.dtype, copy=True) if self.dtype else x


def _arguments(src_tokens, src_lengths=None, return_all_hiddens=False, token_embeddings=None):
    """Return two of the arguments of an encoder's ``forward``: the tokens, and the token embeddings if they are given."""
    return src_tokens, token_embeddings


class CachedLayers(nn.ModuleList):
    """List of an encoder's layers, in which the cache replaces the prefix."""

    prefix_cache: PrefixCache

    def __iter__(self):
        return self.prefix_cache.layers(list(super().__iter__()))


def _random_state() -> list[Tensor]:
    on_gpu = [torch.cuda.get_rng_state()] if torch.cuda.is_available() and torch.cuda.is_initialized() else []
    return [torch.get_rng_state(), *on_gpu]


def _key(prefix_hash, content):
    return hashlib.sha256(f"{prefix_hash} ".encode() + content).digest()
