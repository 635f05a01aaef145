"""``--cuda-graphs`` of trainings: decide whether steps can be recorded, and choose the batch shapes of an epoch."""

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from fairseq.data.iterators import EpochBatchIterator
from fairseq.models import fconv, fconv_self_att
from fairseq.modules import LayerDropModuleList
from fairseq.tasks.fairseq_task import FairseqTask
from fairseq.utils import eval_bool

from ...layers.base import Sublayer
from ...options.fairseq_flags import ModelFlags
from ...options.layer_options import FrozenLayerOptions
from ...options.reading import read
from ...options.speed_options import FastOptions
from .. import freeze_cache
from ..graph_recorder import GraphRecorder
from . import buckets, criteria
from .packed import PackingCollater
from .padding import Padder
from .steps import GraphedSteps

logger = logging.getLogger(__name__)

_BACKENDS = ("legacy_ddp", "no_c10d")
# Encoders that copy values from the GPU in every forward pass, which ``known_padding`` does not prevent.
_WAITING = fconv.FConvEncoder, fconv_self_att.FConvEncoder


def start(trainer: Any, masks: Sequence[Any]) -> GraphedSteps | None:
    """Let a trainer's task record and replay training steps, and return these steps. Return None if ``--cuda-graphs`` has no effect.

    Args:
        trainer: the trainer, with its model and criterion.
        masks: the modules with masked weights.
    """
    cfg = trainer.cfg
    if not read(FastOptions, cfg.model).cuda_graphs:
        return None
    reason = "this training runs on a CPU" if not trainer.cuda else unsupported_reason(trainer)
    if reason:
        logger.info("--cuda-graphs: no effect: %s", reason)
        return None
    torch.cuda.synchronize(trainer.device)
    torch.cuda.set_stream(torch.cuda.Stream(trainer.device))
    return use(trainer, masks, GraphRecorder(trainer.device))


def use(trainer: Any, masks: Sequence[Any], recorder: Any) -> GraphedSteps:
    """Replace the ``train_step`` of a trainer's task by one that records steps with ``recorder``."""
    task = trainer.task
    usual = type(task).train_step.__get__(task)
    several = trainer.cfg.distributed_training.distributed_world_size > 1
    steps = GraphedSteps(recorder, usual, masks, trainer.cfg.common.log_interval or 0, several)
    task.train_step = steps.train_step
    return steps


def unsupported_reason(trainer: Any) -> str | None:
    """Return why a training cannot record steps; None if it can."""
    cfg, task, model = trainer.cfg, trainer.task, trainer.get_model()
    flags, parallel = read(ModelFlags, cfg.model), cfg.distributed_training
    several = parallel.distributed_world_size > 1
    left_target = getattr(task.cfg, "left_pad_target", False)
    unsupported = {
        "--amp": cfg.common.amp,
        f"--ddp-backend {parallel.ddp_backend}; give --ddp-backend legacy_ddp": several
        and parallel.ddp_backend not in _BACKENDS,
        "--heartbeat-timeout, because replays do not count as progress": several and parallel.heartbeat_timeout > 0,
        "--use-bmuf": cfg.optimization.use_bmuf,
        "--pipeline-model-parallel": parallel.pipeline_model_parallel,
        "--checkpoint-activations": flags.checkpoint_activations or flags.offload_activations,
        "--quant-noise-pq": flags.quant_noise_pq > 0,
        "--quantization-config-path": trainer.quantizer is not None,
        "--quant-noise-scalar": flags.quant_noise_scalar > 0,
        "--adaptive-softmax-cutoff": flags.adaptive_softmax_cutoff is not None,
        "--adaptive-input": flags.adaptive_input,
        "--left-pad-target": eval_bool(str(left_target)),
        "--freeze-cache": freeze_cache.read_setting(cfg)[0] is not None,
        "--backskip": read(FrozenLayerOptions, cfg.model).backskip is not None,
        "--store-ema, because the task trains with the averages": cfg.ema.store_ema
        and getattr(task, "uses_ema", False),
    }
    for flag, is_given in unsupported.items():
        if is_given:
            return f"it does not work with {flag}"
    if type(task).train_step is not FairseqTask.train_step:
        return f"the task {type(task).__name__} has its own training step"
    return criteria.unsupported_reason(trainer.get_criterion(), model) or _reason_of_layers(model)


def _reason_of_layers(model):
    for module in model.modules():
        if isinstance(module, LayerDropModuleList) and module.p > 0:
            return "LayerDrop runs different layers in every update"
        if isinstance(module, _WAITING):
            return f"{type(module).__name__} copies values from the GPU to the CPU"
        if isinstance(module, Sublayer) and not type(module).__module__.startswith("fairseq_reservoir."):
            return f"{type(module).__name__} is a user-defined layer, which may copy values from the GPU to the CPU"
    return None


def choose_buckets(trainer: Any, steps: GraphedSteps, iterator: Any) -> None:
    """Choose the shapes to which the batches of an epoch are padded, and let the iterator's workers pad them.

    The shapes depend only on the batches of the epoch, so a resumed run has the same shapes as an uninterrupted run. The number of shapes
    is logged if the shapes differ from those of the previous epoch.
    """
    task, before = trainer.task, steps.padder
    if not isinstance(iterator, EpochBatchIterator):
        logger.info("--cuda-graphs: no effect: the batches of %s are not known in advance", type(iterator).__name__)
        steps.padder = None
        return
    if isinstance(iterator.collate_fn, PackingCollater):  # fairseq uses an iterator for several epochs
        iterator.collate_fn = iterator.collate_fn.collate
    dataset = task.dataset(trainer.cfg.dataset.train_subset)
    shapes = buckets.shapes_of(dataset, iterator.frozen_batches)
    if shapes is None:
        logger.info("--cuda-graphs: no effect: the sentence lengths of %s are not known", type(dataset).__name__)
        steps.padder = None
        return
    chosen = buckets.choose(shapes, read(FastOptions, trainer.cfg.model).cuda_graph_buckets)
    share = float(task.cfg.mask_prob) if criteria.is_masked(trainer.get_criterion()) else None
    steps.padder = Padder(chosen, task.target_dictionary.pad(), task.target_dictionary.eos(), share)
    iterator.collate_fn = PackingCollater(iterator.collate_fn, steps.padder)
    if before is None or not np.array_equal(chosen, before.buckets):
        ratio = buckets.padding(shapes, chosen)
        text = "--cuda-graphs: %d batches padded to %d shapes, %.3f times as many tokens as without padding"
        logger.info(text, len(shapes), len(chosen), ratio)
