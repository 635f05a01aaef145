"""fairseq's trainer with frozen layers, masks, freeze schedules and faster steps. Methods are in the order of their first call."""

import logging
from argparse import Namespace

import fairseq.trainer
import fairseq_cli.train
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.logging import metrics
from fairseq.trainer import Trainer
from torch import Tensor
from torch.nn import Parameter

from ..checkpoint import origin
from ..errors import InputError
from ..fairseq_repairs import epochs, learning_rate, long_samples, mixed_precision, moving_average, stopping
from ..freezing import freeze_skip_hooks
from ..freezing.freeze_schedule import FreezeSchedule
from ..masks.masked_weight import masked_modules
from ..speed import fast, freeze_cache, known_padding, matmul_precision, threads
from ..speed.batched_products import OTHER, other_products
from ..speed.fast_adam import use_fast_adam
from ..speed.fast_half import use_lists
from ..speed.frozen_prefix import FrozenPrefix
from ..speed.graphs import start as graphs_start
from ..speed.graphs.packed import PackedBatch
from ..speed.host_values import HostValues
from ..speed.prefix_cache import PrefixCache
from ..speed.short_updates import CachedConfig, MemoryLog, cached_configuration, seed_generators, shorten_updates
from . import (
    backskip_updates,
    frozen_guard,
    mask_flips,
    model_log,
    nothing_to_train,
    rank_checks,
    rank_data,
    resuming,
    short_log,
    start_stack,
)

logger = logging.getLogger(__name__)


class ReservoirTrainer(Trainer):
    """fairseq's trainer for every model of this package. Without flags of the package it trains as fairseq's trainer does."""

    graphs = None  # the recorded steps of --cuda-graphs
    memory_log: MemoryLog | None = None  # with --fast on a GPU
    cached_cfg: CachedConfig | None = (
        None  # with --fast on a GPU: cfg for the updates, without omegaconf's slow lookups
    )
    products: str | None = None  # with --fast in fp32 on a CPU: the library for matrix products
    host_values: HostValues | None = None  # with --fast on a GPU: the values that an update copies to the host

    # The following attributes are set by other modules.
    # freezing.freeze_skip_hooks: the schedule of the optimizer freeze_skip, and the parameters that it may freeze ({} without a schedule).
    freeze_schedule: FreezeSchedule | None = None
    scheduled: dict[str, Parameter]
    # speed.freeze_cache: the first layers of the encoder, which are frozen, and the cache of their outputs (--freeze-cache).
    frozen_prefix: FrozenPrefix | None = None
    prefix_cache: PrefixCache | None = None
    # checkpoint.origin: the id of the run. It is restored from a checkpoint or created at the first save.
    training_run: str | None = None
    # trainer.frozen_guard: SHA-256 of the frozen tensors when the training started, by name.
    frozen_hashes: dict[str, str] | None = None
    # trainer.mask_flips: the number of an update and the masks that it used, by name; None if the next update does not need them.
    masks_before: tuple[int, dict[str, Tensor]] | None = None

    def __init__(self, cfg, task, model, criterion, quantizer=None):
        """Prepare the model, let fairseq wrap it, then compare the ranks.

        Raises:
            InputError: the model cannot be trained with these flags, or the ranks have different frozen tensors.
        """
        if isinstance(cfg, Namespace):
            cfg = convert_namespace_to_omegaconf(cfg)
        short_log.ignore_warnings()
        start_stack.start_stacks(cfg, task, model)
        criterion = fast.start(cfg, model, criterion)
        freeze_skip_hooks.make_schedule(self, cfg, model)
        freeze_cache.find_prefix(self, cfg, model)
        if fast.is_enabled(cfg):
            model = shorten_updates(model)
        super().__init__(cfg, task, model, criterion, quantizer)
        if self.cuda and fast.is_enabled(cfg):
            self.host_values = HostValues()
            self.memory_log = MemoryLog(self, cfg.common.log_interval)
            self.cached_cfg = CachedConfig(cfg)
        threads.set_threads()
        long_samples.check_validation(self)
        model_log.log_slot_table(self)
        rank_checks.check_processes(self)
        self.graphs = graphs_start.start(self, list(masked_modules(self.get_model()).values()))
        if self.host_values:  # after the graphs, whose steps have logging outputs too
            task.train_step = self.host_values.recorded(task.train_step)

    def _build_optimizer(self):
        """Build the optimizer when the training starts, and again when a checkpoint is loaded."""
        freeze_skip_hooks.thaw_scheduled(self)
        with cached_configuration(self, wanted=False):  # fairseq may build it in the first update
            super()._build_optimizer()
        nothing_to_train.skip_backward_without_gradient(self)
        freeze_skip_hooks.bind_optimizer(self)
        if fast.is_enabled(self.cfg):
            use_fast_adam(self._optimizer)
        if self.host_values:
            self._optimizer = use_lists(self._optimizer, self.host_values.fetch)
        resuming.check_loaded_state(self)

    def load_checkpoint(
        self,
        filename,
        reset_optimizer=False,
        reset_lr_scheduler=False,
        optimizer_overrides=None,
        reset_meters=False,
    ):
        """Load a checkpoint. fairseq calls this once when a training starts, even if the file does not exist.

        Raises:
            InputError: the ranks disagree on the file, or the checkpoint belongs to another model, optimizer or dictionary.
        """
        options = {
            "reset_optimizer": reset_optimizer,
            "reset_lr_scheduler": reset_lr_scheduler,
            "optimizer_overrides": optimizer_overrides,
            "reset_meters": reset_meters,
        }
        rank_checks.agree_on_checkpoint(self, filename, options)
        with resuming.resuming_from(filename, self.cfg.checkpoint.save_dir, reset_optimizer, optimizer_overrides):
            with moving_average.average_loaded_later(self):
                extra_state = super().load_checkpoint(filename, **options)
            stopping.restore_patience(self, extra_state, reset_optimizer)
            if not (reset_optimizer or reset_lr_scheduler):
                learning_rate.step_after_epoch(self, extra_state)
            moving_average.begin_average(self, filename, extra_state)
        origin.check_and_restore_run(self, filename, extra_state, reset_optimizer)
        self.products = matmul_precision.start(self, self.products) if fast.is_enabled(self.cfg) else None
        # Frozen tensors must not change after this.
        frozen_guard.take_hashes(self)
        freeze_cache.start(self)
        return extra_state

    def get_train_iterator(self, epoch, combine=True, load_dataset=True, *args, **options):
        """Return an iterator over the batches of an epoch.

        Raises:
            InputError: the ranks have loaded different data.
        """
        with epochs.batches_of_epoch(self, epoch):
            iterator = super().get_train_iterator(epoch, combine, load_dataset, *args, **options)
        epochs.reload_every_epoch(iterator)
        if load_dataset and self.data_parallel_world_size > 1:
            rank_data.compare_data(self.task, self.data_parallel_process_group)
        freeze_cache.log_size(self, iterator)
        if self.graphs:
            graphs_start.choose_buckets(self, self.graphs, iterator)
        return iterator

    def begin_epoch(self, epoch):
        freeze_cache.check_and_report(self)
        super().begin_epoch(epoch)
        if self.graphs:
            self.graphs.collect_tensors_again()  # a task may have replaced some at the start of the epoch

    @metrics.aggregate("train")
    def train_step(self, samples, raise_oom=False):
        """Run one update: forward and backward pass and optimizer step. fairseq calls ``set_num_updates`` within the update."""
        with cached_configuration(self, wanted=self.cached_cfg is not None):
            backskip_updates.begin_update(self)
            if self.host_values:
                self.host_values.begin_update()
            if self.memory_log:
                self.memory_log.begin_update(self)
            try:
                with other_products(self.products == OTHER):
                    logging_output = super().train_step(samples, raise_oom)
            except mixed_precision.SkippedUpdate as overflow:
                logging_output = mixed_precision.skip_update(self, overflow)
            interval = self.cfg.common.log_interval
            if interval and self.get_num_updates() % interval == 0:
                model_log.report_nan_scores(self)
            mask_flips.measure(self)
        return logging_output

    def _set_seed(self):
        """Seed dropout with the number of the update, so that a resumed training draws the same random numbers."""
        if self.host_values:
            seed_generators(self.cfg.common.seed + self.get_num_updates())
        else:
            super()._set_seed()

    def _prepare_sample(self, sample, is_dummy=False):
        """Copy a batch to the device. ``--cuda-graphs`` pads the batch first. ``--fast`` checks on the CPU whether it has padding."""
        if self.graphs and self.model.training:
            sample = self.graphs.packed(sample)
        if isinstance(sample, PackedBatch):
            return sample.to(self.device).batch(), False
        prepared, is_dummy_batch = super()._prepare_sample(sample, is_dummy)
        if self.host_values and self.model.training and sample:
            known_padding.mark(prepared, sample)
        return prepared, is_dummy_batch

    def _aggregate_logging_outputs(self, logging_outputs, *extra_stats_to_sum, ignore=False):
        """Sum the logging outputs of an update, and ``extra_stats_to_sum``, over all ranks."""
        outputs, extra = super()._aggregate_logging_outputs(logging_outputs, *extra_stats_to_sum, ignore=ignore)
        if self.host_values:
            self.host_values.outputs = outputs
        return outputs, extra

    def clip_grad_norm(self, clip_norm):
        """Clip the gradients of an update, and return their norm before clipping. With ``--fast`` the norm is on the CPU."""
        with mixed_precision.overflow_skips_update():
            norm = super().clip_grad_norm(clip_norm)
        return self.host_values.fetch(norm) if self.host_values else norm

    def _check_grad_norms(self, grad_norm):
        """Check that all ranks have the same gradient norm. fairseq's check needs the norm on the device, not its copy on the CPU."""
        on_device = self.host_values.norm if self.host_values else None
        super()._check_grad_norms(grad_norm if on_device is None else on_device)

    def _log_oom(self, exc):
        """Log too little memory. fairseq then skips the training batch, or repeats the validation step, with the memory of the graphs."""
        super()._log_oom(exc)
        if self.graphs:
            self.graphs.drop_recordings()

    def set_num_updates(self, num_updates):
        """Set the number of updates, apply the freeze schedule, adapt the cached prefix to it, and fit the estimators of ``--backskip``."""
        super().set_num_updates(num_updates)
        freeze_skip_hooks.follow_update(self, num_updates)
        freeze_cache.follow_schedule(self)
        backskip_updates.end_update(self, num_updates)

    def begin_valid_epoch(self, epoch):
        super().begin_valid_epoch(epoch)
        if self.graphs:
            logger.info("--cuda-graphs: %s", self.graphs.describe())
        model_log.report_nan_scores(self)

    def state_dict(self):
        """Return everything that fairseq saves in a checkpoint."""
        return moving_average.add_counter(self, super().state_dict())

    def save_checkpoint(self, filename, extra_state):
        """Save a checkpoint with the run id, the dictionaries and the state of ``--patience``.

        Raises:
            InputError: a frozen tensor has changed since the training started.
        """
        frozen_guard.refuse_changes(self, filename)
        with cached_configuration(self, wanted=False):  # fairseq saves in an update that fails
            path = super().save_checkpoint(
                filename, {**extra_state, **origin.run_id(self), **stopping.patience_state()}
            )
        model_log.report_nan_scores(self)
        return path


def use_reservoir_trainer() -> None:
    """Let every program train with ``ReservoirTrainer`` in place of fairseq's trainer.

    ``Trainer(...)`` constructs a ``ReservoirTrainer`` even in a module that imported ``Trainer`` earlier, such as the module that
    ``python -m fairseq_cli.train`` runs. Subclasses that are defined later derive from ``ReservoirTrainer``.
    """

    def new(cls, *args, **kwargs):
        if cls is Trainer:
            return object.__new__(ReservoirTrainer)
        if not issubclass(cls, ReservoirTrainer):
            raise InputError(
                f"{cls.__name__} was derived from fairseq's Trainer before fairseq_reservoir was imported, so this package has no effect "
                "on it. Import fairseq_reservoir first. fairseq's MegatronTrainer (--model-parallel-size) is not supported"
            )
        return object.__new__(cls)

    Trainer.__new__ = staticmethod(new)
    fairseq.trainer.Trainer = fairseq_cli.train.Trainer = ReservoirTrainer
