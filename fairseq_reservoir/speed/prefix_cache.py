"""The output of a frozen prefix, kept batch by batch: the second time a batch comes, its layers are not run."""

import hashlib
import logging
from functools import partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from ..errors import InputError
from ..layers.replace import adopt
from . import kept_tensor
from .frozen_prefix import FrozenPrefix

logger = logging.getLogger(__name__)


class Store(Protocol):
    """A place for tensors, which may be full: in memory, or a ``TensorFile``."""

    full: bool

    def begin(self, prefix: str) -> None: ...

    def get(self, key: bytes) -> tuple[bytes, Tensor] | None: ...

    def put(self, key: bytes, about: bytes, flat: Tensor) -> None: ...


class Memory:
    """Tensors in this process, up to ``limit`` bytes."""

    def __init__(self, limit: int) -> None:
        self.limit, self.used, self.full = limit, 0, False
        self.kept: dict[bytes, tuple[bytes, Tensor]] = {}

    def begin(self, prefix: str) -> None:
        """What another prefix gave is of no use any more."""
        self.kept.clear()
        self.used, self.full = 0, False

    def get(self, key: bytes) -> tuple[bytes, Tensor] | None:
        return self.kept.get(key)

    def pop(self, key: bytes) -> tuple[bytes, Tensor] | None:
        """As ``get``, and keeps it no longer."""
        found = self.kept.pop(key, None)
        self.used -= found[1].nbytes if found else 0
        return found

    def put(self, key: bytes, about: bytes, flat: Tensor) -> None:
        if self.used + flat.nbytes <= self.limit:
            self.kept[key] = about, flat.clone()
            self.used += flat.nbytes
        elif not self.full:
            self.full = True
            logger.warning(
                "--freeze-cache-mib %d is reached; batches that are not kept are worked out each time", self.limit >> 20
            )


class PrefixCache:
    """h = prefix(tokens), (time, batch, dim), from ``store`` where it is there, bit for bit as the layers give it.

    A batch is known by the SHA-256 of its padded tokens and of the prefix. A sentence alone would not do: padded to another
    length, its row of h differs in the last bits. Nothing is trained here, and only training goes through it: validation and
    generation run all layers. fairseq's models ask for the output of every layer, which no translation reads; of those inside the
    prefix it is None.

    Where a schedule lets the prefix grow, what ``Memory`` keeps of the smaller one is gone on from: of a batch that is kept to one
    layer, those above it to the prefix's end are run, and their output takes its place. A file begins anew then, and so does memory with a
    ``dtype``: it would round twice what a resumed training rounds once.

    Args:
        prefix: of the encoder that is to ask this.
        store: where to keep what.
        dtype: type to round an fp32 h to, in every epoch alike, or None to keep all bits.

    Raises:
        InputError: in training, a prefix that is not frozen, or draws random numbers.
    """

    def __init__(self, prefix: FrozenPrefix, store: Store, dtype: torch.dtype | None = None) -> None:
        self.prefix, self.store, self.dtype = prefix, store, dtype
        self.hash: str | None = None
        # Hash and depth of the prefixes that this one has grown out of and whose outputs are gone on from, the smallest first.
        self.smaller: list[tuple[str | None, int]] = []
        self.hits = self.grown = self.misses = 0  # batches found, found of a smaller prefix, and not found
        self.size_told = False  # whether the log has what it will take
        self.idle_epochs = 0  # one after the other in which none was found
        self._batch: bytes | None = None
        self._found: tuple[bytes, Tensor] | None = None
        self._depth = 0  # of what was found
        self._random: list[Tensor] = []
        encoder = prefix.encoder
        encoder.layers = layers = adopt(CachedLayers, encoder.layers)
        layers.prefix_cache = self
        encoder.register_forward_pre_hook(self.begin_batch, with_kwargs=True)
        encoder.register_forward_hook(self.end_batch, with_kwargs=True, always_call=True)

    def __deepcopy__(self, memo: Any) -> "PrefixCache":
        """fairseq's moving average copies the model, and is not trained."""
        return self

    def follow(self, depth_before: int) -> None:
        """To be called when the prefix has another depth than before."""
        goes_on = 0 < depth_before < self.prefix.depth and self.dtype is None and isinstance(self.store, Memory)
        self.smaller = [*self.smaller, (self.hash, depth_before)] if goes_on else []
        self.hash = self.prefix.hash() if self.prefix.depth else None
        self.idle_epochs = 0
        if self.hash and not goes_on:
            self.store.begin(self.hash)

    def begin_batch(self, encoder: nn.Module, args: tuple, kwargs: dict) -> None:
        """A pre-hook of the encoder: look the batch up, so that its layers use the cached output."""
        tokens, given = _arguments(*args, **kwargs)
        if self.hash is None or not encoder.training or given is not None:
            return
        shown = f"{tuple(tokens.shape)} {tokens.dtype}".encode() + tokens.cpu().numpy().tobytes()
        self._batch = _key(self.hash, shown)
        self._found, self._depth = self._find(shown)
        self._random = [] if self._depth == self.prefix.depth else _random_state()

    def end_batch(self, encoder: nn.Module, args: tuple, kwargs: dict, result: Any) -> None:
        """A hook of the encoder, called after an error too: hidden states of layers inside the prefix are None."""
        was_cached = self._batch is not None
        self._batch = self._found = None
        for name, place in (("encoder_states", 1), ("fc_results", 0)):
            if was_cached and result and result[name]:  # a list of fairseq's, filled if somebody reads all layers
                result[name][place:place] = [None] * (self.prefix.depth - 1)

    def layers(self, all_layers):
        """The encoder's layers, the prefix's as one, while a batch runs."""
        if self._batch is None:
            return iter(all_layers)
        depth = self.prefix.depth
        return iter([partial(self._prefix, all_layers[:depth]), *all_layers[depth:]])

    def _find(self, shown):
        """(what is kept of the batch, to how many layers); what is not kept to the prefix's end is taken out of memory."""
        if found := self.store.get(self._batch):
            return found, self.prefix.depth
        for smaller, depth in reversed(self.smaller):
            if found := self.store.pop(_key(smaller, shown)):
                return found, depth
        return None, 0

    def _prefix(self, layers, x, encoder_padding_mask):
        if self._found:
            x = kept_tensor.unpack(*self._found).to(x.device)
        if self._depth == self.prefix.depth:
            self.hits += 1
            return x
        self.grown += self._depth > 0
        self.misses += self._depth == 0
        for layer in layers[self._depth :]:
            x = layer(x, encoder_padding_mask=encoder_padding_mask)
            x = x[0] if isinstance(x, tuple) else x
        if x.requires_grad:
            raise InputError("--freeze-cache: something below the layers that are kept is trained; leave the flag out")
        if not all(map(torch.equal, self._random, _random_state())):
            raise InputError(f"--freeze-cache: something in {self.prefix} draws random numbers; leave the flag out")
        about, flat = kept_tensor.pack(x, self.dtype)
        self.store.put(self._batch, about, flat)
        return kept_tensor.unpack(about, flat).to(x.device) if self.dtype else x


def _arguments(src_tokens, src_lengths=None, return_all_hiddens=False, token_embeddings=None):
    """(tokens, their embeddings or None) among the arguments of an encoder's ``forward``."""
    return src_tokens, token_embeddings


class CachedLayers(nn.ModuleList):
    """An encoder's list of layers of which the prefix comes from a cache."""

    prefix_cache: PrefixCache

    def __iter__(self):
        return self.prefix_cache.layers(list(super().__iter__()))


def _random_state() -> list[Tensor]:
    on_gpu = [torch.cuda.get_rng_state()] if torch.cuda.is_available() and torch.cuda.is_initialized() else []
    return [torch.get_rng_state(), *on_gpu]


def _key(prefix_hash, shown):
    return hashlib.sha256(f"{prefix_hash} ".encode() + shown).digest()
