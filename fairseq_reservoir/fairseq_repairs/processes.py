"""Repairs of how the processes of one run work together; ``cpu_launch`` is about how they are started."""

import inspect
import sys

import torch
import torch.distributed as dist
from fairseq import options
from fairseq.distributed import LegacyDistributedDataParallel, utils as distributed_utils
from fairseq.models import distributed_fairseq_model
from fairseq.tasks import FairseqTask
from fairseq.tasks.translation import TranslationTask

from ..errors import InputError, flag_of
from .given import Given
from .repair import repair, wrap


@repair(
    "ddp-on-cpu",
    needed=lambda: distributed_fairseq_model.DistributedDataParallel is torch.nn.parallel.DistributedDataParallel,
)
def let_ddp_wrap_cpu_modules():
    """Name no device to torch's DistributedDataParallel for a module on the CPU.

    fairseq always passes ``device_ids=[device_id]``; torch refuses that for CPU modules, so the default
    ``--ddp-backend pytorch_ddp`` cannot train on CPUs ("DistributedDataParallel's input module must be on ...").
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

    It always allocates a CUDA buffer; criterions whose logs cannot be summed end with ``type torch.cuda.ByteTensor not
    available`` after the first update. It looks for the buffers on the function of its own name, which is ours now.
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
    """Let several processes resume.

    The first one reads the checkpoint and sends it to the others, who unpack it with ``torch.load``. Since torch 2.6 that
    knows nothing of the configuration in it: ``Unsupported global: omegaconf.dictconfig.DictConfig``. torch's own way to
    send an object trusts the other processes of a run.
    """

    def broadcast_object(original, obj, src_rank, group, dist_device):
        objects = [obj]
        dist.broadcast_object_list(objects, src=src_rank, group=group, device=dist_device)
        return objects[0]

    wrap(distributed_utils, "_broadcast_object_slow", broadcast_object)


@repair("trained-gradients")
def reduce_only_what_is_trained():
    """Let ``--ddp-backend legacy_ddp`` send between processes the gradients of what is trained, and no more.

    It sums a buffer with room for all parameters, however few of them have a gradient, in the number format of the first
    of them, which may be frozen, or of half precision where others, as scores of masks, are not.
    """

    def all_reduce_grads(original, ddp):
        trained = [parameter for parameter in ddp.module.parameters() if parameter.requires_grad]
        size = min(ddp.buffer_size, sum(parameter.numel() for parameter in trained))
        if trained and (ddp.buffer is None or ddp.buffer.numel() != size):  # a freeze schedule changes what is trained
            ddp.buffer = next((p for p in trained if p.dtype == torch.float32), trained[0]).new(size)
        original(ddp)

    wrap(LegacyDistributedDataParallel, "all_reduce_grads", all_reduce_grads)


@repair("whole-test-set")
def score_everything_in_one_process():
    """Refuse ``--distributed-world-size`` above 1 where the first part of the data alone would be scored.

    ``fairseq-generate`` and ``fairseq-eval-lm`` share the data out, the latter also by ``--num-shards``, and print the BLEU or the
    loss of one share. Whoever says which one wants just that.
    """

    def parse_args_and_arch(original, parser, input_args=None, *args, **kwargs):
        parsed = original(parser, input_args, *args, **kwargs)
        flags = parsed[0] if isinstance(parsed, tuple) else parsed
        known = parser._option_string_actions
        names = ["distributed_world_size"] if "--beam" in known else []
        names += ["distributed_world_size", "num_shards"] if "--context-window" in known else []
        words = {word.split("=")[0] for word in (sys.argv[1:] if input_args is None else input_args)}
        for name in names:
            shares = getattr(Given(flags), name) or 1
            if shares > 1 and not words & {"--distributed-rank", "--shard-id"}:
                raise InputError(
                    f"{flag_of(name)} {shares}: this command would do the first of as many parts of the data; leave it out, or say which "
                    "part by --distributed-rank"
                )
        return parsed

    wrap(options, "parse_args_and_arch", parse_args_and_arch)


@repair("shared-validation")
def validate_without_a_batch():
    """Let ``fairseq-validate`` share out a number of batches that its processes do not divide.

    One that was left without a batch ended in a KeyError.
    """

    def valid_step(original, task, sample, *args, **kwargs):
        return original(task, sample, *args, **kwargs) if sample else (0.0, 0, {})

    for task in (FairseqTask, TranslationTask):
        wrap(task, "valid_step", valid_step)
