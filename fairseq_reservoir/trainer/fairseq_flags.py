"""Before data is read, refuse values of fairseq's flags that would cause a traceback. The error has one line."""

import ast
import math
from importlib.util import find_spec
from typing import Any

from fairseq.models import ARCH_MODEL_REGISTRY, FairseqMultiModel
from fairseq.tasks import TASK_REGISTRY
from fairseq.tasks.multilingual_translation import MultilingualTranslationTask
from fairseq.tasks.translation_lev import TranslationLevenshteinTask

from ..errors import InputError, flag_of
from ..options import fairseq_rules
from ..options.fairseq_flags import CriterionFlags, OptimizerFlags, TaskFlags, architecture_of, choice_of
from ..options.for_fairseq import dictionary_flags
from ..options.number_rules import collect, refuse
from ..options.reading import read

# Schedules that accept only one learning rate. The others accept one for each epoch.
ONE_RATE = ("inverse_sqrt", "cosine", "reduce_lr_on_plateau", "tri_stage", "triangular")


def check(cfg: Any) -> None:
    """Refuse numbers that fairseq cannot use, and a training that has no optimizer or no batch size."""
    data = cfg.dataset
    found: list[str] = []
    if cfg.optimizer is None:
        found.append("--optimizer: is required; the usual choice is --optimizer adam")
    if choice_of(cfg.task) in fairseq_rules.BATCHED and data.max_tokens is None and data.batch_size is None:
        found.append(
            "--max-tokens: this flag or --batch-size is required; give for example --max-tokens 4096 for at most 4,096 tokens per batch"
        )
    wrong_numbers: list[str] = []
    with collect(wrong_numbers):
        fairseq_rules.check_training(cfg)
    found += wrong_numbers
    if cfg.checkpoint.write_checkpoints_asynchronously and not find_spec("iopath"):
        found.append(
            "--write-checkpoints-asynchronously: needs the package iopath; run pip install iopath, or remove the flag"
        )
    for check_part, part in (
        (check_number_of_rates, cfg),
        (_check_adaptive_loss, cfg),
        (_check_model_of_task, cfg),
        (_check_metric, cfg),
        (_check_pairs, cfg.optimizer),
        (dictionary_flags.check_manual_rates, cfg.lr_scheduler),
        (dictionary_flags.check_task, cfg.task),
        (_check_optimizer_overrides, cfg.checkpoint),
        # These checks compute with numbers.
        *(() if wrong_numbers else ((check_phases, cfg), (_check_masked_shares, cfg.task))),
    ):
        with collect(found):
            check_part(part)
    refuse(found)


def check_number_of_rates(cfg: Any) -> None:
    """Refuse several learning rates for a schedule that accepts one rate."""
    scheduler, rates = choice_of(cfg.lr_scheduler), cfg.optimization.lr
    if scheduler in ONE_RATE and len(rates) > 1:
        raise InputError(
            f"--lr {','.join(f'{rate:g}' for rate in rates)}: --lr-scheduler {scheduler} accepts one rate; give one, or use --lr-scheduler "
            "fixed, which accepts one for each epoch"
        )


def check_phases(cfg: Any) -> None:
    """Refuse a schedule with a phase of 0 updates."""
    scheduler = choice_of(cfg.lr_scheduler)
    if scheduler == "cosine":
        _check_cosine(cfg.lr_scheduler, cfg.optimization.max_update)
    if scheduler == "tri_stage":
        _check_tri_stage(cfg.lr_scheduler, cfg.optimization.max_update)


def _check_cosine(scheduler, max_update):
    """Refuse a cosine period of 0, because fairseq divides by the period.

    The default period is ``--max-update`` minus ``--warmup-updates``.
    """
    if scheduler.lr_period_updates > 0 or max_update > scheduler.warmup_updates:
        return
    raise InputError(
        f"--max-update {max_update}: must be above --warmup-updates {scheduler.warmup_updates} with --lr-scheduler cosine;"
        " or give --lr-period-updates"
    )


def _check_adaptive_loss(cfg):
    if choice_of(cfg.criterion) != "adaptive_loss":
        return
    found = []
    backend = cfg.distributed_training.ddp_backend
    if backend in ("c10d", "pytorch_ddp"):
        found.append(
            f"--ddp-backend {backend}: not supported with --criterion adaptive_loss; give --ddp-backend legacy_ddp"
        )
    if hasattr(cfg.model, "adaptive_softmax_cutoff") and not cfg.model.adaptive_softmax_cutoff:
        found.append("--criterion adaptive_loss: needs --adaptive-softmax-cutoff, such as 10000,50000")
    refuse(found)


def _check_model_of_task(cfg):
    """Refuse a model that its task cannot train, or that the task trains but ``fairseq-generate`` cannot use."""
    task, arch = choice_of(cfg.task), architecture_of(cfg.model)
    model = ARCH_MODEL_REGISTRY.get(arch)
    if model is None:
        return
    refused = f"--arch {arch}: not supported with --task {task}"
    if issubclass(TASK_REGISTRY[task], MultilingualTranslationTask) and not issubclass(model, FairseqMultiModel):
        raise InputError(
            f"{refused}, which needs a model for each language pair; give --arch frozen_multilingual_transformer,"
            " or --task translation_multi_simple_epoch"
        )
    is_refining = hasattr(model, "initialize_output_tokens")  # the search of translation_lev calls it
    if is_refining and task == "translation":
        raise InputError(f"{refused}; give --task translation_lev --criterion nat_loss")
    if not is_refining and issubclass(TASK_REGISTRY[task], TranslationLevenshteinTask):
        raise InputError(
            f"{refused}, which needs a non-autoregressive model; give --arch frozen_nonautoregressive_transformer,"
            " or --task translation"
        )


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
    if sum(ratios) != 1:  # fairseq compares the same floating-point sum
        raise InputError(f"{shown}: must add up to 1, not {sum(ratios)}")
    if int(max_update * ratios[2]) < 1:
        raise InputError(f"{shown}: with --max-update {max_update}, the last stage has no update, but needs at least 1")


def _check_metric(cfg):
    """Refuse a metric that no validation logs. fairseq would fail at the first validation, before it saves a checkpoint."""
    metric = cfg.checkpoint.best_checkpoint_metric
    if cfg.dataset.disable_validation:
        return
    if metric == "bleu" and read(TaskFlags, cfg.task).eval_bleu is False:
        raise InputError("--best-checkpoint-metric bleu: needs --eval-bleu")
    if metric == "accuracy" and read(CriterionFlags, cfg.criterion).report_accuracy is False:
        raise InputError("--best-checkpoint-metric accuracy: needs --report-accuracy")
    if metric in ("valid_loss", "valid_nll_loss", "valid_ppl", "valid_bleu"):
        raise InputError(
            f"--best-checkpoint-metric {metric}: must not start with valid_; give {metric.removeprefix('valid_')}"
        )


def _check_pairs(optimizer):
    """Check the optimizer flags whose value is a pair of numbers. fairseq evaluates these values as Python expressions."""
    flags, found = read(OptimizerFlags, optimizer), []
    for name in ("adam_betas", "adamax_betas", "lamb_betas"):
        betas = vars(flags)[name]
        if isinstance(betas, str) and not _are_two(betas, lambda beta: 0 <= beta < 1):
            found.append(f"{flag_of(name)} {betas}: must be two numbers from 0 to below 1, such as '(0.9, 0.98)'")
    eps = flags.adafactor_eps
    if isinstance(eps, str) and not _are_two(eps, lambda number: 0 <= number < math.inf):
        found.append(f"--adafactor-eps {eps}: must be two numbers of at least 0, such as '(1e-30, 1e-3)'")
    refuse(found)


def _check_optimizer_overrides(checkpoint):
    dictionary_flags.read_python("--optimizer-overrides", checkpoint.optimizer_overrides)


def _check_masked_shares(task):
    if choice_of(task) not in fairseq_rules.MASKED:
        return
    random, unmasked = task.random_token_prob, task.leave_unmasked_prob
    if random + unmasked > 1:
        raise InputError(
            f"--random-token-prob {random:g} and --leave-unmasked-prob {unmasked:g}: must add up to at most 1"
        )


def _are_two(text, is_usable):
    try:
        found = ast.literal_eval(text.strip())
        return len(found) == 2 and all(is_usable(number) for number in found)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return False
