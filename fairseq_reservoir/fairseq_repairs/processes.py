"""Repairs of the communication between the ranks of a run. ``cpu_launch`` repairs the start of ranks."""

import inspect

import torch
import torch.distributed as dist
from fairseq.data.iterators import EpochBatchIterator
from fairseq.distributed import LegacyDistributedDataParallel, utils as distributed_utils
from fairseq.models import distributed_fairseq_model
from fairseq.tasks import FairseqTask
from fairseq.tasks.translation import TranslationTask

from ..errors import InputError, flag_of
from .error_report import fairseq_command
from .given import Given, names_in
from .repair import repair, wrap


@repair(
    "ddp-on-cpu",
    needed=lambda: distributed_fairseq_model.DistributedDataParallel is torch.nn.parallel.DistributedDataParallel,
)
def let_ddp_wrap_cpu_modules():
    """Pass no device to torch's DistributedDataParallel if the module is on the CPU.

    fairseq always passes ``device_ids=[device_id]``. torch refuses a device id for a module on the CPU, so the default ``--ddp-backend
    pytorch_ddp`` cannot train on CPUs ("DistributedDataParallel's input module must be on ...").
    """

    class DistributedDataParallel(torch.nn.parallel.DistributedDataParallel):
        def __init__(self, module, device_ids=None, output_device=None, **kwargs):
            if all(parameter.device.type == "cpu" for parameter in module.parameters()):
                device_ids = output_device = None
            super().__init__(module, device_ids=device_ids, output_device=output_device, **kwargs)

    distributed_fairseq_model.DistributedDataParallel = DistributedDataParallel


def _uses(function, word) -> bool:
    return word in inspect.unwrap(function).__code__.co_names


@repair("gathering-on-cpu", needed=lambda: _uses(distributed_utils.all_gather_list, "cuda"))
def let_gloo_gather_objects():
    """Let ``all_gather_list`` work between CPU processes.

    fairseq's function always allocates a CUDA buffer. With a criterion whose logs cannot be summed, a training ends after the first update
    with ``type torch.cuda.ByteTensor not available``. fairseq reads its buffers from attributes of ``distributed_utils.all_gather_list``,
    so the hook sets these attributes to CPU buffers.
    """

    def all_gather_list(original, data, group=None, max_size=16384):
        process_group = distributed_utils.get_global_group() if group is None else group
        if dist.is_initialized() and dist.get_backend(process_group) == "gloo":
            buffers = distributed_utils.all_gather_list
            buffers._buffer = torch.ByteTensor(max_size * dist.get_world_size(process_group))
            buffers._cpu_buffer = torch.ByteTensor(max_size)
        return original(data, group=process_group, max_size=max_size)

    wrap(distributed_utils, "all_gather_list", all_gather_list)


@repair(
    "broadcast-checkpoints",
    needed=lambda: _uses(distributed_utils._broadcast_object_slow, "load"),
)
def broadcast_checkpoints():
    """Resume a run with more than one rank.

    Rank 0 reads the checkpoint and broadcasts it. The other ranks unpickle it with ``torch.load``, which since torch 2.6 refuses the
    configuration: ``Unsupported global: omegaconf.dictconfig.DictConfig``. With this repair, torch's own function broadcasts the object.
    This function accepts objects of every class. This is safe because the ranks of a run trust each other.
    """

    def broadcast_object(original, obj, src_rank, group, dist_device):
        objects = [obj]
        dist.broadcast_object_list(objects, src=src_rank, group=group, device=dist_device)
        return objects[0]

    wrap(distributed_utils, "_broadcast_object_slow", broadcast_object)


@repair("trained-gradients")
def reduce_only_what_is_trained():
    """Reduce only the gradients of trained parameters with ``--ddp-backend legacy_ddp``.

    fairseq reduces a buffer as large as all parameters, even if few parameters have a gradient. The buffer has the dtype of the first
    parameter, even if this parameter is frozen, or is in half precision while trained mask scores are in fp32.
    """

    def all_reduce_grads(original, ddp):
        trained = [parameter for parameter in ddp.module.parameters() if parameter.requires_grad]
        size = min(ddp.buffer_size, sum(parameter.numel() for parameter in trained))
        # A freeze schedule changes the trained parameters.
        if trained and (ddp.buffer is None or ddp.buffer.numel() != size):
            ddp.buffer = next((p for p in trained if p.dtype == torch.float32), trained[0]).new(size)
        original(ddp)

    wrap(LegacyDistributedDataParallel, "all_reduce_grads", all_reduce_grads)


@repair("whole-test-set")
def score_everything_in_one_process():
    """Refuse ``--distributed-world-size`` above 1 if a command would score only the first part of the data.

    ``fairseq-generate`` and ``fairseq-eval-lm`` divide the data into parts, and print the BLEU or the loss of one part. They also do so
    with ``--num-shards``. If a flag selects the part, the command is not refused. ``trainer.reading_flags`` calls ``refuse_shares``.
    """


def refuse_shares(parser, flags, words) -> None:
    """Refuse a command that would score only the first part of the data.

    Raises:
        InputError: one line with the flag.
    """
    if not score_everything_in_one_process.is_applied:
        return
    known = parser._option_string_actions
    names = {"num_shards": "--shard-id", "distributed_world_size": "--distributed-rank"}
    given = names_in(words)
    for name, part in names.items() if {"--beam", "--context-window"} & known.keys() else ():
        shares = getattr(Given(flags), name) or 1
        if shares > 1 and not given & set(names.values()):
            raise InputError(
                f"{flag_of(name)} {shares}: this command would score only the first of {shares} parts of the data; remove the flag, or "
                f"select a part with {part}"
            )


@repair("parts-of-test-set")
def translate_the_chosen_part():
    """Let ``fairseq-generate`` translate only the part of the data that ``--num-shards`` and ``--shard-id`` select.

    fairseq ignores these flags, and translates all sentences in every part. It reads ``--distributed-world-size`` and
    ``--distributed-rank`` instead. ``trainer.reading_flags`` calls ``select_part``. A part without a batch is refused. In fairseq,
    ``fairseq-generate`` then ends in a traceback, and ``fairseq-eval-lm`` prints the perplexity 1.00.
    """

    def next_epoch_itr(original, self, *args, **kwargs):
        is_scoring = fairseq_command() in ("fairseq-generate", "fairseq-eval-lm")
        if is_scoring and self.shard_id >= len(self.frozen_batches):
            raise InputError(
                f"--shard-id {self.shard_id}: this part is empty, because the data has only {len(self.frozen_batches)} batches; give a "
                "smaller --num-shards or --batch-size"
            )
        return original(self, *args, **kwargs)

    wrap(EpochBatchIterator, "next_epoch_itr", next_epoch_itr)


def select_part(parser, flags) -> None:
    """Copy ``--num-shards`` and ``--shard-id`` to the flags that ``fairseq-generate`` reads.

    Raises:
        InputError: the command is ``fairseq-interactive``, which translates all lines.
    """
    known, shards = parser._option_string_actions, Given(flags).num_shards or 1
    if not translate_the_chosen_part.is_applied or "--beam" not in known or shards == 1:
        return
    if "--buffer-size" in known:
        raise InputError(f"--num-shards {shards}: fairseq-interactive translates every line; remove the flag")
    flags.distributed_world_size = max(shards, flags.distributed_world_size)
    flags.distributed_rank = max(flags.shard_id, flags.distributed_rank)


@repair("shared-validation")
def validate_without_a_batch():
    """Let ``fairseq-validate`` run if the number of batches is not a multiple of the number of ranks.

    In fairseq, a rank without a batch ends in a KeyError.
    """

    def valid_step(original, task, sample, *args, **kwargs):
        return original(task, sample, *args, **kwargs) if sample else (0.0, 0, {})

    for task in (FairseqTask, TranslationTask):
        wrap(task, "valid_step", valid_step)
