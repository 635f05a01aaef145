"""Installs everything that the plugin changes in fairseq: the repairs of ``fairseq_repairs.in_order``, then these hooks."""

from collections.abc import Callable
from typing import Any

from fairseq import checkpoint_utils, models, options, tasks, utils
from fairseq.distributed import utils as distributed_utils
from fairseq.optim import AMPOptimizer, FairseqOptimizer
from fairseq.optim.fp16_optimizer import _FP16OptimizerMixin, _MemoryEfficientFP16OptimizerMixin
from fairseq.tasks.language_modeling import LanguageModelingTask
from fairseq.tasks.masked_lm import MaskedLMTask
from fairseq.tasks.translation import TranslationTask
from fairseq.trainer import Trainer

from ..checkpoint import (
    dry_build,
    fairseq_loader,
    named_models,
    origin,
    other_dictionary,
    pretrained_embeddings,
    unregistered,
)
from ..errors import InputError
from ..fairseq_repairs import error_report, in_order, repair
from . import (
    backskip_hooks,
    data_files,
    fast,
    freeze_auto,
    freeze_cache,
    freeze_skip,
    freeze_skip_hooks,
    frozen_guard,
    fused_criterion,  # noqa: F401  registers the criterion
    mask_flips,
    nothing_to_train,
    preflight,
    rank_checks,
    rank_data,
    start_stack,
    threads,
    training_hooks,
)

# Of several hooks of a function the last is called first, around those above it.
HOOKS: tuple[tuple[Any, str, Callable], ...] = (
    # Flags are read.
    (options, "parse_args_and_arch", threads.read_flag),
    (options, "parse_args_and_arch", named_models.check_flags),
    (options, "parse_args_and_arch", data_files.check_flags),
    (options, "parse_args_and_arch", threads.point_to_help),
    (options, "parse_args_and_arch", other_dictionary.read_flag),
    (options, "parse_args_and_arch", error_report.install_first),  # must stay the last one
    # A run starts: files and flags are checked before any process of it is started.
    (distributed_utils, "call_main", preflight.check_first),
    *((task, name, data_files.name_missing_files)
      for task in (TranslationTask, LanguageModelingTask, MaskedLMTask) for name in ("setup_task", "load_dataset")),
    # A trainer is made. The table is printed when fairseq's own part of it has succeeded; the schedule is made before that,
    # while the model's names are its own; processes are compared after all this, by the schedule too.
    (Trainer, "__init__", training_hooks.refuse_and_print),
    (Trainer, "__init__", freeze_cache.look_at_model),
    (Trainer, "__init__", freeze_skip_hooks.make_schedule),
    (Trainer, "__init__", fast.start),
    (Trainer, "__init__", rank_checks.check_processes),
    (Trainer, "__init__", start_stack.start),
    (Trainer, "_build_optimizer", nothing_to_train.look_at_backend),
    (Trainer, "_build_optimizer", freeze_skip_hooks.bind_optimizer),
    (Trainer, "_build_optimizer", fast.build_optimizer),
    # It goes on from a checkpoint: processes agree on the file before any of them reads it.
    # What is frozen is hashed when all of it has been loaded.
    (Trainer, "load_checkpoint", training_hooks.load_in_one_line),
    (Trainer, "load_checkpoint", origin.take_over),
    (Trainer, "load_checkpoint", frozen_guard.take_hashes),
    (Trainer, "load_checkpoint", freeze_cache.start),
    (Trainer, "load_checkpoint", rank_checks.agree_on_checkpoint),
    (FairseqOptimizer, "load_state_dict", training_hooks.refuse_state_of_others),
    (AMPOptimizer, "state_dict", freeze_skip_hooks.state_inside_amp),
    (AMPOptimizer, "load_state_dict", freeze_skip_hooks.load_inside_amp),
    (Trainer, "get_train_iterator", freeze_cache.tell_size),
    (Trainer, "get_train_iterator", rank_data.compare_training_data),
    # It trains: estimators begin before the step, scores and masks are looked at after it; parameters freeze before estimators are told.
    (Trainer, "train_step", training_hooks.report_nan_scores_at_log_interval),
    (Trainer, "train_step", mask_flips.measure),
    (Trainer, "train_step", backskip_hooks.begin_update),
    (Trainer, "train_step", threads.set_threads),
    (Trainer, "train_step", freeze_auto.take_probe),
    *((of, "backward", nothing_to_train.leave_out_backward)
      for of in (FairseqOptimizer, AMPOptimizer, _FP16OptimizerMixin, _MemoryEfficientFP16OptimizerMixin)),
    (Trainer, "set_num_updates", freeze_skip_hooks.follow_update),
    (Trainer, "set_num_updates", freeze_cache.follow_schedule),
    (Trainer, "set_num_updates", backskip_hooks.end_update),
    (Trainer, "begin_epoch", freeze_cache.check_and_report),
    (Trainer, "begin_valid_epoch", training_hooks.report_nan_scores),
    (Trainer, "save_checkpoint", training_hooks.report_nan_scores),
    (Trainer, "save_checkpoint", origin.mark),
    (Trainer, "save_checkpoint", frozen_guard.compare),
    # Any command reads a model: exports too, and no word vectors that a checkpoint replaces.
    (checkpoint_utils, "load_checkpoint_to_cpu", fairseq_loader.read_export),
    (checkpoint_utils, "load_model_ensemble_and_task", fairseq_loader.check_dictionaries),
    (models, "build_model", unregistered.refuse_unknown_architecture),
    (tasks, "setup_task", unregistered.refuse_unknown_task),
    (utils, "parse_embedding", pretrained_embeddings.ask_for_vectors),
    (utils, "load_embedding", pretrained_embeddings.load_vectors),
    (utils, "print_embed_overlap", pretrained_embeddings.print_overlap),
)  # fmt: skip


def install() -> None:
    """Called once, when the plugin is imported; a second call does nothing.

    Raises:
        InputError: ``FAIRSEQ_RESERVOIR_WITHOUT`` names no repair.
    """
    try:
        repair.apply(in_order.REPAIRS)
    except InputError:
        error_report.install_in_command()
        raise
    for owner, name, hook in HOOKS:
        repair.wrap(owner, name, hook)
    freeze_skip.register_all()
    dry_build.notes[:] = [fast.planned, freeze_skip_hooks.planned]
