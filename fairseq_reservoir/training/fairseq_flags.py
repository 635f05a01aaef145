"""Mistakes in fairseq's own flags that it meets with a traceback, often after it has read the data: told in one line, before."""

import ast
from typing import Any

from ..errors import InputError

# Tasks of fairseq whose batches are made of at most so many tokens or sentences.
BATCHED = ("translation", "language_modeling", "masked_lm")


def check(cfg: Any) -> None:
    """Refuses a training without optimizer or size of a batch, and numbers that fairseq divides by or counts with.

    Raises:
        InputError: one line with the flag, what it was given and what is allowed.
    """
    data = cfg.dataset
    if cfg.optimizer is None:
        raise InputError("--optimizer: is not given, and has no default; adam is the usual one")
    if getattr(cfg.task, "_name", None) in BATCHED and data.max_tokens is None and data.batch_size is None:
        raise InputError(
            "--max-tokens: neither it nor --batch-size is given; give one, such as --max-tokens 4096, the tokens of a batch"
        )
    for flag, value in (("--max-tokens", data.max_tokens), ("--batch-size", data.batch_size)):
        if value is not None and (value == 0 or value < -1):  # fairseq takes -1 for no limit
            raise InputError(f"{flag} {value}: must be at least 1")
    for value in cfg.optimization.update_freq:
        if value < 1:
            raise InputError(f"--update-freq {value}: must be at least 1")
    for flag, value, least in (("--log-interval", cfg.common.log_interval, 1), ("--num-workers", data.num_workers, 0)):
        if value < least:
            raise InputError(f"{flag} {value}: must be at least {least}")
    if getattr(cfg.criterion, "_name", None) == "adaptive_loss":
        _check_adaptive_loss(cfg)
    betas = getattr(cfg.optimizer, "adam_betas", None)
    if isinstance(betas, str) and not _are_betas(betas):
        raise InputError(f"--adam-betas {betas}: must be two numbers from 0 to below 1, such as '(0.9, 0.98)'")


def _check_adaptive_loss(cfg):
    backend = cfg.distributed_training.ddp_backend
    if backend in ("c10d", "pytorch_ddp"):
        raise InputError(f"--ddp-backend {backend}: not with --criterion adaptive_loss; give --ddp-backend legacy_ddp")
    if not getattr(cfg.model, "adaptive_softmax_cutoff", True):
        raise InputError("--criterion adaptive_loss: needs --adaptive-softmax-cutoff, such as 10000,50000")


def _are_betas(text):
    try:
        found = ast.literal_eval(text.strip())
        return len(found) == 2 and all(0 <= beta < 1 for beta in found)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return False
