"""fairseq's trainer with frozen layers, masks, freeze schedules and faster steps: what happens when, from top to bottom."""

from argparse import Namespace

import fairseq.trainer
import fairseq_cli.train
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.trainer import Trainer

from ..checkpoint import origin
from ..errors import InputError
from ..fairseq_repairs import long_sentences
from ..freezing import freeze_auto, freeze_skip_hooks
from ..speed import fast, freeze_cache, threads
from ..speed.fast_adam import use_fast_adam
from . import (
    backskip_updates as backskip_hooks,
    frozen_guard,
    mask_flips,
    nothing_to_train,
    rank_checks,
    rank_data,
    start_stack,
    training_hooks,
)


class ReservoirTrainer(Trainer):
    """fairseq's trainer, which trains every model of this package. Without the package's flags it trains as fairseq's does."""

    def __init__(self, cfg, task, model, criterion, quantizer=None):
        """Prepare the model before fairseq wraps it, then compare the ranks.

        Raises:
            InputError: the model cannot be trained with these flags, or the ranks hold different frozen tensors.
        """
        if isinstance(cfg, Namespace):
            cfg = convert_namespace_to_omegaconf(cfg)
        start_stack.start_stacks(cfg, task, model)
        criterion = fast.start(cfg, model, criterion)
        freeze_skip_hooks.make_schedule(self, cfg, task, model)
        freeze_cache.find_prefix(self, cfg, model)
        super().__init__(cfg, task, model, criterion, quantizer)
        long_sentences.check_validation(self)
        training_hooks.refuse_and_print(self)
        rank_checks.check_processes(self)

    def _build_optimizer(self):
        """Build the optimizer at the start and whenever a checkpoint is loaded."""
        freeze_skip_hooks.thaw_scheduled(self)
        super()._build_optimizer()
        nothing_to_train.note_backend(self)
        freeze_skip_hooks.bind_optimizer(self)
        if fast.asked(self.cfg):
            use_fast_adam(self._optimizer)

    def load_checkpoint(
        self,
        filename,
        reset_optimizer=False,
        reset_lr_scheduler=False,
        optimizer_overrides=None,
        reset_meters=False,
    ):
        """Load a checkpoint. fairseq calls this once when a training starts, whether the file exists or not.

        Raises:
            InputError: the ranks disagree on the file, or the checkpoint is of another model, optimizer or dictionary.
        """
        options = {
            "reset_optimizer": reset_optimizer,
            "reset_lr_scheduler": reset_lr_scheduler,
            "optimizer_overrides": optimizer_overrides,
            "reset_meters": reset_meters,
        }
        rank_checks.agree_on_checkpoint(self, filename, options)
        with training_hooks.resuming_from(filename, self.cfg.checkpoint.save_dir, reset_optimizer):
            extra_state = super().load_checkpoint(filename, **options)
        origin.check_and_restore_run(self, filename, extra_state, reset_optimizer)
        # From here on no frozen tensor changes.
        frozen_guard.take_hashes(self)
        freeze_cache.start(self)
        return extra_state

    def get_train_iterator(self, epoch, combine=True, load_dataset=True, *args, **options):
        """The batches of an epoch.

        Raises:
            InputError: the ranks have loaded different data.
        """
        iterator = super().get_train_iterator(epoch, combine, load_dataset, *args, **options)
        if load_dataset and self.data_parallel_world_size > 1:
            rank_data.compare_data(self.task, self.data_parallel_process_group)
        freeze_cache.log_size(self, iterator)
        return iterator

    def begin_epoch(self, epoch):
        freeze_cache.check_and_report(self)
        super().begin_epoch(epoch)

    def train_step(self, samples, raise_oom=False):
        """One update: forward, backward and optimizer step. fairseq calls ``set_num_updates`` inside it."""
        freeze_auto.keep_probe_batch(self, samples)
        threads.set_threads(self)
        backskip_hooks.begin_update(self)
        logging_output = super().train_step(samples, raise_oom)
        interval = self.cfg.common.log_interval
        if interval and self.get_num_updates() % interval == 0:
            training_hooks.report_nan_scores(self)
        mask_flips.measure(self)
        return logging_output

    def set_num_updates(self, num_updates):
        """Count an update. The schedules that depend on the number of updates follow in this order."""
        super().set_num_updates(num_updates)
        freeze_skip_hooks.follow_update(self, num_updates)
        freeze_cache.follow_schedule(self)
        backskip_hooks.end_update(self, num_updates)

    def begin_valid_epoch(self, epoch):
        super().begin_valid_epoch(epoch)
        training_hooks.report_nan_scores(self)

    def save_checkpoint(self, filename, extra_state):
        """Save a checkpoint with the identity of the run and its dictionaries.

        Raises:
            InputError: a frozen tensor has changed since the training started.
        """
        frozen_guard.refuse_changes(self, filename)
        path = super().save_checkpoint(filename, {**extra_state, **origin.run_id(self)})
        training_hooks.report_nan_scores(self)
        return path


def use_reservoir_trainer() -> None:
    """Let every program train with ``ReservoirTrainer`` in place of fairseq's trainer.

    ``Trainer(...)`` constructs a ``ReservoirTrainer`` wherever the name was imported before, as in the copy of the command that
    ``python -m fairseq_cli.train`` runs. A subclass that is defined later derives from ``ReservoirTrainer``.
    """

    def new(cls, *args, **kwargs):
        if cls is Trainer:
            return object.__new__(ReservoirTrainer)
        if not issubclass(cls, ReservoirTrainer):
            raise InputError(
                f"{cls.__name__}: is a subclass of fairseq's Trainer from before fairseq_reservoir was imported, and trains without it; "
                "import fairseq_reservoir first (fairseq's MegatronTrainer, of --model-parallel-size, is not supported)"
            )
        return object.__new__(cls)

    Trainer.__new__ = staticmethod(new)
    fairseq.trainer.Trainer = fairseq_cli.train.Trainer = ReservoirTrainer
