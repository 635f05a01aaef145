"""Install all changes to fairseq: the repairs in ``fairseq_repairs.in_order``, the hooks in ``HOOKS``, and the trainer."""

from collections.abc import Callable
from typing import Any

from fairseq import checkpoint_utils, models, options, tasks, utils
from fairseq.distributed import utils as distributed_utils
from fairseq.tasks import FairseqTask

from ..checkpoint import dry_build, fairseq_loader, pretrained_embeddings
from ..errors import InputError
from ..fairseq_repairs import error_report, in_order, repair
from ..freezing import freeze_skip, freeze_skip_hooks
from ..speed import (
    fast,
    fused_criterion,  # noqa: F401  registers the criterion
)
from ..speed.generation import enable as generation_graphs
from . import building, preflight, reading_flags, short_log
from .reservoir_trainer import use_reservoir_trainer

# Module of fairseq, name of its function, and the hook that replaces the function. Each hook calls the function that it replaces.
HOOKS: tuple[tuple[Any, str, Callable], ...] = (
    # Reading the flags of a command, and starting its work.
    (options, "parse_args_and_arch", reading_flags.parse_args_and_arch),
    (distributed_utils, "call_main", preflight.call_main),
    # Setting up a task and building a model, or loading both from a checkpoint or an export.
    (tasks, "setup_task", building.setup_task),
    (models, "build_model", building.build_model),
    (checkpoint_utils, "load_checkpoint_to_cpu", fairseq_loader.read_export),
    (checkpoint_utils, "load_model_ensemble_and_task", building.load_model_ensemble_and_task),
    # Searching the translations of a batch.
    (FairseqTask, "inference_step", generation_graphs.inference_step),
    # Reading pretrained word vectors, unless a checkpoint replaces them.
    (utils, "parse_embedding", pretrained_embeddings.defer_reading),
    (utils, "load_embedding", pretrained_embeddings.load_vectors),
    (utils, "print_embed_overlap", pretrained_embeddings.print_overlap),
)


def install() -> None:
    """Install all changes to fairseq, when the plugin is imported. A second call does nothing.

    Raises:
        InputError: ``FAIRSEQ_RESERVOIR_WITHOUT`` names an unknown repair.
    """
    try:
        repair.apply(in_order.REPAIRS)
    except InputError:
        error_report.install_in_command()
        raise
    for owner, name, hook in HOOKS:
        repair.wrap(owner, name, hook)
    use_reservoir_trainer()
    short_log.install()
    freeze_skip.register_all()
    freeze_skip_hooks.use_resumable_amp()
    dry_build.notes[:] = [fast.describe_for_plan, freeze_skip_hooks.describe_for_plan]
    # These imports register the models. fairseq's own search of models/ would import them in another order.
    from ..models import reservoir, supermask  # noqa: F401, I001

    # Must be last, because it registers a frozen variant of every architecture that is not of this package.
    from ..models import frozen  # noqa: F401
