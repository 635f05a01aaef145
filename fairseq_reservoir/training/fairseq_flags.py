"""Refuses, in one line and before data is read, values of fairseq's own flags that would end in a traceback."""

import ast
from importlib.util import find_spec
from typing import Any

from ..errors import InputError

# Tasks of fairseq whose batches are made of at most so many tokens or sentences.
BATCHED = ("translation", "language_modeling", "masked_lm")

# Schedules that begin from a rate and go on by themselves; others take one for each epoch.
ONE_RATE = ("inverse_sqrt", "cosine", "reduce_lr_on_plateau", "tri_stage", "triangular")


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
    for flag, value, least in (
        ("--log-interval", cfg.common.log_interval, 1),
        ("--validate-interval", data.validate_interval, 1),
        ("--save-interval", cfg.checkpoint.save_interval, 1),
        ("--num-workers", data.num_workers, 0),
        ("--required-batch-size-multiple", data.required_batch_size_multiple, 1),
        ("--max-valid-steps", data.max_valid_steps, 0),
    ):
        if value is not None and value < least:
            raise InputError(f"{flag} {value}: must be at least {least}")
    if not 0 <= cfg.common.seed < 2**31:  # numpy takes 32 bits, and gets the seed and the number of the epoch
        raise InputError(f"--seed {cfg.common.seed}: must be from 0 to {2**31 - 1}")
    buckets = getattr(cfg.task, "num_batch_buckets", None)
    if buckets and data.max_tokens is None:
        raise InputError(f"--num-batch-buckets {buckets}: needs --max-tokens, the tokens of a batch")
    if cfg.checkpoint.write_checkpoints_asynchronously and not find_spec("iopath"):
        raise InputError(
            "--write-checkpoints-asynchronously: needs the package iopath; pip install iopath, or leave it out"
        )
    _check_rates(cfg)
    if getattr(cfg.criterion, "_name", None) == "adaptive_loss":
        _check_adaptive_loss(cfg)
    if getattr(cfg.lr_scheduler, "_name", None) == "tri_stage":
        _check_tri_stage(cfg.lr_scheduler, cfg.optimization.max_update)
    _check_metric(cfg)
    betas = getattr(cfg.optimizer, "adam_betas", None)
    if isinstance(betas, str) and not _are_betas(betas):
        raise InputError(f"--adam-betas {betas}: must be two numbers from 0 to below 1, such as '(0.9, 0.98)'")


def _check_rates(cfg):
    scheduler, rates = getattr(cfg.lr_scheduler, "_name", None), cfg.optimization.lr
    if scheduler in ONE_RATE and len(rates) > 1:
        raise InputError(
            f"--lr {','.join(f'{rate:g}' for rate in rates)}: --lr-scheduler {scheduler} takes one; fixed takes one for each epoch"
        )
    warmup, least = getattr(cfg.lr_scheduler, "warmup_updates", 1), int(scheduler == "inverse_sqrt")
    if warmup < least:
        raise InputError(f"--warmup-updates {warmup}: must be at least {least} with --lr-scheduler {scheduler}")


def _check_adaptive_loss(cfg):
    backend = cfg.distributed_training.ddp_backend
    if backend in ("c10d", "pytorch_ddp"):
        raise InputError(f"--ddp-backend {backend}: not with --criterion adaptive_loss; give --ddp-backend legacy_ddp")
    if not getattr(cfg.model, "adaptive_softmax_cutoff", True):
        raise InputError("--criterion adaptive_loss: needs --adaptive-softmax-cutoff, such as 10000,50000")


def _check_tri_stage(scheduler, max_update):
    ratios = scheduler.phase_ratio
    if ratios is None:
        if scheduler.decay_steps < 1:
            raise InputError(
                f"--decay-steps {scheduler.decay_steps}: must be at least 1 with --lr-scheduler tri_stage; or give --phase-ratio,"
                " such as '(0.1, 0.4, 0.5)', and --max-update"
            )
        return
    shown = f"--phase-ratio {tuple(ratios)}"
    if max_update < 1:
        raise InputError(f"{shown}: needs --max-update")
    if sum(ratios) != 1:  # as fairseq adds them up
        raise InputError(f"{shown}: must add up to 1, not {sum(ratios)}")
    if int(max_update * ratios[2]) < 1:
        raise InputError(f"{shown}: of --max-update {max_update} none is left for the last stage, which needs one")


def _check_metric(cfg):
    """fairseq looks for it at the first validation, after an epoch that nobody has saved."""
    metric = cfg.checkpoint.best_checkpoint_metric
    if cfg.dataset.disable_validation:
        return
    if metric == "bleu" and getattr(cfg.task, "eval_bleu", None) is False:
        raise InputError("--best-checkpoint-metric bleu: needs --eval-bleu")
    if metric == "accuracy" and getattr(cfg.criterion, "report_accuracy", None) is False:
        raise InputError("--best-checkpoint-metric accuracy: needs --report-accuracy")
    if metric in ("valid_loss", "valid_nll_loss", "valid_ppl", "valid_bleu"):
        raise InputError(
            f"--best-checkpoint-metric {metric}: must be without valid_, as {metric.removeprefix('valid_')}"
        )


def _are_betas(text):
    try:
        found = ast.literal_eval(text.strip())
        return len(found) == 2 and all(0 <= beta < 1 for beta in found)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return False
