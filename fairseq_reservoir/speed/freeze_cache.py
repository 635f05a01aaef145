"""The trainer's code for ``--freeze-cache`` and ``--frozen-prefix-no-dropout``: find the frozen prefix and cache its output."""

import logging
from typing import Any

import torch

from ..errors import InputError
from ..options.freeze_skip_options import FreezeSkipOptions
from ..options.layer_options import FrozenLayerOptions
from ..options.reading import read
from ..options.speed_options import DTYPES, MEMORY, FreezeCacheOptions
from .frozen_prefix import FrozenPrefix, encoder_of
from .prefix_cache import Memory, PrefixCache

logger = logging.getLogger(__name__)

_MIB = 2**20


def read_setting(cfg: Any) -> tuple[str | None, bool]:
    """Return the values of ``--freeze-cache`` and ``--frozen-prefix-no-dropout``."""
    flags = read(FreezeCacheOptions, cfg.model)
    return flags.freeze_cache, flags.frozen_prefix_no_dropout


def check_flags(cfg: Any) -> None:
    """Refuse flags that cannot be combined with a cached or dropout-free frozen prefix. Call this before data is read.

    Raises:
        InputError: a flag cannot be combined with ``--freeze-cache`` or ``--frozen-prefix-no-dropout``.
    """
    where, no_dropout = read_setting(cfg)
    flag = f"--freeze-cache {where}" if where else "--frozen-prefix-no-dropout"
    if not (where or no_dropout):
        return
    if where not in (None, MEMORY):
        raise InputError(f"{flag}: a cache in a file is no longer supported; give {MEMORY}")
    if read(FreezeSkipOptions, cfg.optimizer).freeze_rotate:
        raise InputError(
            f"{flag} with --freeze-rotate: the rotation trains different layers in every period, so no layer stays frozen; "
            "remove one of these flags"
        )
    if cfg.distributed_training.ddp_backend == "fully_sharded":
        raise InputError(
            f"{flag} with --ddp-backend fully_sharded: no process has all parameters of a layer; give --ddp-backend legacy_ddp"
        )
    if where and read(FrozenLayerOptions, cfg.model).backskip:
        raise InputError(
            f"{flag} with --backskip: a frozen prefix has no backward pass to skip; remove one of these flags"
        )


def find_prefix(trainer, cfg, model) -> None:
    """Set ``trainer.frozen_prefix``. Call this before fairseq wraps the model, because the wrapper changes the names of parameters.

    Raises:
        InputError: the model has no frozen prefix at any update of the training.
    """
    where, no_dropout = read_setting(cfg)
    trainer.frozen_prefix = trainer.prefix_cache = None
    if where or no_dropout:
        flag = f"--freeze-cache {where}" if where else "--frozen-prefix-no-dropout"
        check_flags(cfg)
        prefix = FrozenPrefix(*encoder_of(model, flag))
        phases = trainer.freeze_schedule.frozen_in_phases() if trainer.freeze_schedule else (frozenset(),)
        parameters = dict(model.named_parameters())
        reached = [prefix.reaches(_ids(parameters, trainer.scheduled, frozen)) for frozen in phases]
        depth = max(depth for depth, _ in reached)
        if not depth:
            raise InputError(
                f"{flag}: the encoder's embeddings and its first layer are never frozen at the same time, because {reached[-1][1]} is "
                "trained; freeze this parameter too, for example with --freeze"
            )
        if where:
            prefix.refuse_randomness(depth, keeps_dropout=not no_dropout)
        trainer.frozen_prefix = prefix


def start(trainer) -> None:
    """Create the cache at the start of the training. Call this after a checkpoint is loaded, because loading changes frozen tensors."""
    prefix, options = trainer.frozen_prefix, trainer.cfg.model
    where, _ = read_setting(trainer.cfg)
    if prefix is not None:
        if where:
            rounded = DTYPES[options.freeze_cache_dtype]
            store = Memory(options.freeze_cache_mib * _MIB)
            trainer.prefix_cache = PrefixCache(prefix, store, getattr(torch, rounded) if rounded else None)
        _follow(trainer)


def follow_schedule(trainer) -> None:
    """Adapt the prefix after a freeze schedule has frozen or unfrozen layers."""
    is_used = trainer.prefix_cache or read_setting(trainer.cfg) == (None, True)
    if trainer.freeze_schedule and trainer.frozen_prefix and is_used:
        _follow(trainer)


def check_and_report(trainer) -> None:
    """At the start of an epoch, check that the prefix has not changed, and log how many batches came from the cache.

    Raises:
        InputError: the prefix has changed.
    """
    cache = trainer.prefix_cache
    if cache and cache.hash is not None:
        _refuse_changes(cache)
        batches = cache.hits + cache.grown + cache.misses
        if batches:
            partly = f", {cache.grown} more from the cache of a smaller prefix" if cache.grown else ""
            logger.info("--freeze-cache: %d of %d batches came from the cache%s", cache.hits, batches, partly)
            cache.idle_epochs = 0 if cache.hits or cache.grown else cache.idle_epochs + 1
        if cache.idle_epochs == 2 and not cache.store.full:  # the first epoch of a prefix only fills the cache
            logger.warning(
                "--freeze-cache: no batch has occurred twice, so the cache does not save time; possible reasons: several data folders, "
                "or a task or flag that makes new batches in every epoch, such as --update-epoch-batch-itr"
            )
        cache.hits = cache.grown = cache.misses = 0


def log_size(trainer, iterator) -> None:
    """Log once how much memory the cache will need for the batches of ``iterator``."""
    cache = trainer.prefix_cache
    if cache and not cache.size_logged:
        cache.size_logged = True
        options = trainer.cfg.model
        needed, limit = size_of(iterator, cache, trainer), options.freeze_cache_mib
        if needed is None:
            logger.info(
                "--freeze-cache memory: the cache may grow to %d MiB; its size is not known before the training", limit
            )
        else:
            mib, processes = -(-needed // _MIB), trainer.data_parallel_world_size
            each = f" in each of {processes} processes, because they exchange batches between epochs" * (processes > 1)
            logger.info("--freeze-cache memory: about %d MiB when all batches are cached%s", mib, each)
            if mib > limit:
                logger.warning(
                    "--freeze-cache-mib %d: not all batches will be cached; to cache all, give %d", limit, mib
                )


def size_of(iterator: Any, cache: PrefixCache, trainer: Any) -> int | None:
    """Predict the memory of all cached batches, in bytes. Return None if the lengths of the sentences are unknown.

    A batch needs sentences x longest sentence x dim x bytes per number.
    """
    dataset = iterator.dataset
    lengths = getattr(dataset, "src_sizes", getattr(dataset, "sizes", None))
    if lengths is None or getattr(lengths, "ndim", 0) != 1:
        return None
    encoder = cache.prefix.encoder
    half = cache.dtype or trainer.cfg.common.fp16 or trainer.cfg.common.bf16
    entries = sum(len(batch) * int(max(lengths[i] for i in batch)) for batch in iterator.frozen_batches)
    return entries * encoder.embed_tokens.embedding_dim * (2 if half else 4)


def _follow(trainer):
    """Adapt the prefix's depth, dropout and cache to the parameters that are frozen at this update."""
    prefix, cache, schedule = trainer.frozen_prefix, trainer.prefix_cache, trainer.freeze_schedule
    frozen = schedule.frozen(trainer.get_num_updates()) if schedule else ()
    depth, _ = prefix.reaches(_ids(dict(trainer.get_model().named_parameters()), trainer.scheduled, frozen))
    if depth == prefix.depth:
        return
    if cache and cache.hash:
        _refuse_changes(cache)
    if read_setting(trainer.cfg)[1]:
        prefix.silence(depth)
    before, prefix.depth = prefix.depth, depth
    if cache:
        cache.follow(before)
        logger.info("--freeze-cache: %s", f"caches the output of {prefix}" if depth else "off until a prefix is frozen")


def _refuse_changes(cache):
    if cache.prefix.hash() != cache.hash:
        raise InputError(f"--freeze-cache: a frozen tensor in {cache.prefix} has changed in this run; remove the flag")


def _ids(parameters, scheduled, frozen):
    """Return the ids of the parameters that are always frozen and of those with a name in ``frozen``."""
    return {id(p) for n, p in parameters.items() if n in frozen or not (n in scheduled or p.requires_grad)}
