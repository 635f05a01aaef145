"""Install everything that the plugin changes in fairseq: the repairs of ``fairseq_repairs.in_order``, these hooks, and the trainer."""

from collections.abc import Callable
from typing import Any

from fairseq import checkpoint_utils, models, options, tasks, utils
from fairseq.distributed import utils as distributed_utils
from fairseq.optim import AMPOptimizer, FairseqOptimizer
from fairseq.optim.fp16_optimizer import _FP16OptimizerMixin, _MemoryEfficientFP16OptimizerMixin
from fairseq.tasks.language_modeling import LanguageModelingTask
from fairseq.tasks.masked_lm import MaskedLMTask
from fairseq.tasks.translation import TranslationTask

from ..checkpoint import (
    dry_build,
    fairseq_loader,
    model_path_checks,
    other_dictionary,
    pretrained_embeddings,
    unregistered,
)
from ..errors import InputError
from ..fairseq_repairs import error_report, in_order, repair
from ..freezing import freeze_skip, freeze_skip_hooks
from ..speed import (
    fast,
    fused_criterion,  # noqa: F401  registers the criterion
    threads,
)
from . import data_files, nothing_to_train, preflight, training_hooks
from .reservoir_trainer import use_reservoir_trainer

# Of several hooks of a function the last is called first, around those above it.
HOOKS: tuple[tuple[Any, str, Callable], ...] = (
    # Flags are read.
    (options, "parse_args_and_arch", threads.read_flag),
    (options, "parse_args_and_arch", model_path_checks.check_flags),
    (options, "parse_args_and_arch", data_files.check_flags),
    (options, "parse_args_and_arch", threads.point_to_help),
    (options, "parse_args_and_arch", other_dictionary.read_flag),
    (options, "parse_args_and_arch", error_report.install_first),  # must stay the last one
    # A run starts: files and flags are checked before any process of it is started.
    (distributed_utils, "call_main", preflight.check_first),
    *((task, name, data_files.name_missing_files)
      for task in (TranslationTask, LanguageModelingTask, MaskedLMTask) for name in ("setup_task", "load_dataset")),
    # An optimizer loads its state and steps.
    (FairseqOptimizer, "load_state_dict", training_hooks.refuse_state_of_others),
    (AMPOptimizer, "state_dict", freeze_skip_hooks.state_inside_amp),
    (AMPOptimizer, "load_state_dict", freeze_skip_hooks.load_inside_amp),
    *((of, "backward", nothing_to_train.leave_out_backward)
      for of in (FairseqOptimizer, AMPOptimizer, _FP16OptimizerMixin, _MemoryEfficientFP16OptimizerMixin)),
    # Any command reads a model: exports too, and no word vectors that a checkpoint replaces.
    (checkpoint_utils, "load_checkpoint_to_cpu", fairseq_loader.read_export),
    (checkpoint_utils, "load_model_ensemble_and_task", fairseq_loader.check_dictionaries),
    (models, "build_model", unregistered.refuse_unknown_architecture),
    (tasks, "setup_task", unregistered.refuse_unknown_task),
    (utils, "parse_embedding", pretrained_embeddings.defer_reading),
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
    use_reservoir_trainer()
    freeze_skip.register_all()
    dry_build.notes[:] = [fast.planned, freeze_skip_hooks.planned]
    # These imports register the models. fairseq's own search of models/ would import them in another order.
    from ..models import reservoir, supermask  # noqa: F401, I001

    # Must be last, because it skips architectures of this package.
    from ..models import frozen  # noqa: F401
