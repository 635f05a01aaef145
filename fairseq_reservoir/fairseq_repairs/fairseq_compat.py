"""Repairs of the installed fairseq, one function each.

Every function looks first whether its defect is there, so a fairseq that has been repaired is left alone. ``apply``
runs when the plugin is imported: after ``import fairseq``, before arguments are parsed and anything is built or loaded.
"""

import argparse
import functools
import sys
import warnings
from types import SimpleNamespace

import numpy as np
import torch
import torch.distributed as dist
from fairseq import checkpoint_utils, options, utils
from fairseq.data import data_utils
from fairseq.distributed import LegacyDistributedDataParallel, utils as distributed_utils
from fairseq.models import distributed_fairseq_model
from fairseq.models.ema.ema import EMA
from fairseq.tasks import FairseqTask

from . import cpu_launch, numpy_values, recomputation, saving
from .error_report import refuse_flags_in_one_line, report_input_errors


@functools.cache
def apply():
    """Repair fairseq; calling it again does nothing."""
    keep_last_batch()
    load_no_programs()
    trust_classes_in_checkpoints()
    restore_numpy_names()
    keep_bf16_off_tpu()
    let_ddp_wrap_cpu_modules()
    let_gloo_gather_objects()
    broadcast_checkpoints()
    reduce_only_what_is_trained()
    keep_batches_when_resuming()
    keep_the_stack_that_is_not_pruned()
    keep_untrained_tensors_in_ema()
    store_shared_tensors_once()
    saving.install()
    recomputation.install()
    report_input_errors()
    refuse_flags_in_one_line()
    hush_hydra()
    cpu_launch.install()


def keep_last_batch():
    """Keep the last batch when its size is no multiple of ``--required-batch-size-multiple`` (default 8).

    Since data2vec 2.0 (December 2022) ``batch_by_size`` throws that batch away, in training, validation and generation.
    Batches go from short to long, so up to seven of the longest sentences vanish: a test set of 60 lines is scored on
    56, one of 5 lines on nothing. Batches are consecutive, so what was thrown away is exactly the tail of the indices.
    """
    original = data_utils.batch_by_size
    three = np.arange(3)
    batches = original(three, None, num_tokens_vec=np.ones(3, dtype=np.int64), required_batch_size_multiple=2)
    if sum(map(len, batches)) == len(three):
        return

    @functools.wraps(original)
    def batch_by_size(indices, *args, **kwargs):
        if not isinstance(indices, np.ndarray):
            indices = np.fromiter(indices, dtype=np.int64, count=-1)
        if len(indices) == 0:
            return []
        batches = original(indices, *args, **kwargs)
        kept = sum(map(len, batches))
        return batches if kept == len(indices) else [*batches, indices[kept:]]

    data_utils.batch_by_size = batch_by_size


def load_no_programs():
    """Say ``weights_only=True`` for every ``torch.load`` that says nothing, whatever the environment says.

    fairseq says nothing anywhere. With TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD, which many set to get over the error below, a
    checkpoint from elsewhere may run any program. A call that says ``weights_only=False`` knows what it does.
    """
    original = torch.load
    if hasattr(original, "loads_no_programs"):
        return

    @functools.wraps(original)
    def load(f, map_location=None, pickle_module=None, *, weights_only=None, **kwargs):
        if weights_only is None and pickle_module is None:
            weights_only = True
        return original(f, map_location, pickle_module, weights_only=weights_only, **kwargs)

    load.loads_no_programs = True
    torch.load = load


def trust_classes_in_checkpoints():
    """Let ``torch.load`` read fairseq's checkpoints.

    Since torch 2.6 it unpickles only classes it knows to be harmless. fairseq stores the model's flags as an
    ``argparse.Namespace``, and with ``--eval-bleu`` counts as numpy arrays: resuming, generating and validating end
    with ``Unsupported global: argparse.Namespace``.
    """
    torch.serialization.add_safe_globals([argparse.Namespace, *numpy_values.CONSTRUCTORS])


def restore_numpy_names():
    """Give numpy back the names that fairseq still uses.

    numpy 1.24 removed ``np.int`` and ``np.float`` (span masks, the CRF layer), a later numpy 2 ``np.compat`` (blocks of
    text for language models, prompts given to ``fairseq-interactive``): AttributeError in the middle of a run.
    """
    # Looking in the namespace, as numpy 1 answers hasattr for such names with a warning.
    for name, meaning in {"int": int, "float": float, "compat": SimpleNamespace(long=np.int64)}.items():
        if name not in vars(np):
            setattr(np, name, meaning)


def keep_bf16_off_tpu():
    """Let ``--bf16`` mean the number format alone; ``--tpu`` still means a TPU.

    ``parse_args_and_arch`` turns every ``--bf16`` into ``--bf16 --tpu``, which on a CPU or GPU ends with ``'NoneType'
    object has no attribute 'xla_device'``. The commands look the function up after the plugin was imported.
    """
    original = options.parse_args_and_arch
    if hasattr(original, "__wrapped__"):
        return

    @functools.wraps(original)
    def parse_args_and_arch(parser, input_args=None, *args, **kwargs):
        parsed = original(parser, input_args, *args, **kwargs)
        namespace = parsed[0] if isinstance(parsed, tuple) else parsed
        words = sys.argv[1:] if input_args is None else input_args
        if getattr(namespace, "bf16", False) and "--tpu" not in words:
            namespace.tpu = bool(parser.get_default("tpu"))
        return parsed

    options.parse_args_and_arch = parse_args_and_arch


def let_ddp_wrap_cpu_modules():
    """Name no device to torch's DistributedDataParallel for a module on the CPU.

    fairseq always passes ``device_ids=[device_id]``; torch refuses that for CPU modules, so the default
    ``--ddp-backend pytorch_ddp`` cannot train on CPUs ("DistributedDataParallel's input module must be on ...").
    """
    original = distributed_fairseq_model.DistributedDataParallel
    if original is not torch.nn.parallel.DistributedDataParallel:
        return

    class DistributedDataParallel(original):
        def __init__(self, module, device_ids=None, output_device=None, **kwargs):
            if all(parameter.device.type == "cpu" for parameter in module.parameters()):
                device_ids = output_device = None
            super().__init__(module, device_ids=device_ids, output_device=output_device, **kwargs)

    distributed_fairseq_model.DistributedDataParallel = DistributedDataParallel


def let_gloo_gather_objects():
    """Let ``all_gather_list`` work between CPU processes.

    It always allocates a CUDA buffer; criterions whose logs cannot be summed end with ``type torch.cuda.ByteTensor not
    available`` after the first update. It looks for the buffers on the function of its own name, which is ours now.
    """
    original = distributed_utils.all_gather_list
    if "cuda" not in original.__code__.co_names:
        return

    @functools.wraps(original)
    def all_gather_list(data, group=None, max_size=16384):
        process_group = distributed_utils.get_global_group() if group is None else group
        if dist.is_initialized() and dist.get_backend(process_group) == "gloo":
            all_gather_list._buffer = torch.ByteTensor(max_size * dist.get_world_size(process_group))
            all_gather_list._cpu_buffer = torch.ByteTensor(max_size)
        return original(data, group=process_group, max_size=max_size)

    distributed_utils.all_gather_list = all_gather_list


def broadcast_checkpoints():
    """Let several processes resume.

    The first one reads the checkpoint and sends it to the others, who unpack it with ``torch.load``. Since torch 2.6 that
    knows nothing of the configuration in it: ``Unsupported global: omegaconf.dictconfig.DictConfig``. torch's own way to
    send an object trusts the other processes of a run.
    """
    original = distributed_utils._broadcast_object_slow
    if "load" not in original.__code__.co_names:
        return

    @functools.wraps(original)
    def broadcast_object(obj, src_rank, group, dist_device):
        objects = [obj]
        dist.broadcast_object_list(objects, src=src_rank, group=group, device=dist_device)
        return objects[0]

    distributed_utils._broadcast_object_slow = broadcast_object


def reduce_only_what_is_trained():
    """Let ``--ddp-backend legacy_ddp`` send between processes the gradients of what is trained, and no more.

    It sums a buffer with room for all parameters, however few of them have a gradient, in the number format of the first
    of them, which may be frozen.
    """
    original = LegacyDistributedDataParallel.all_reduce_grads
    if hasattr(original, "__wrapped__"):
        return

    @functools.wraps(original)
    def all_reduce_grads(self):
        trained = [parameter for parameter in self.module.parameters() if parameter.requires_grad]
        size = min(self.buffer_size, sum(parameter.numel() for parameter in trained))
        if trained and (self.buffer is None or self.buffer.numel() != size):  # a freeze schedule changes what is trained
            self.buffer = trained[0].new(size)
        original(self)

    LegacyDistributedDataParallel.all_reduce_grads = all_reduce_grads


def keep_batches_when_resuming():
    """Give a resumed run the batches of the run that it continues.

    A run makes its batches when it starts, from ``--seed`` and the epoch, which is 1, and keeps them for all epochs.
    A run resumed in epoch 2 made others: it was no longer the same run, and resumed within an epoch it trained on
    some sentences twice and left others out.
    """
    original = FairseqTask.get_batch_iterator
    if hasattr(original, "__wrapped__"):
        return

    @functools.wraps(original)
    def get_batch_iterator(self, dataset, *args, **flags):
        epoch = flags.get("epoch", 1)
        kept = self.can_reuse_epoch_itr(dataset) and not (
            flags.get("disable_iterator_cache") or flags.get("update_epoch_batch_itr")
        )
        if not kept or dataset in self.dataset_to_epoch_iter:
            return original(self, dataset, *args, **flags)
        iterator = original(self, dataset, *args, **{**flags, "epoch": 1})
        iterator.epoch = epoch
        return iterator

    FairseqTask.get_batch_iterator = get_batch_iterator


def keep_the_stack_that_is_not_pruned():
    """Let ``--encoder-layers-to-keep`` alone leave the decoder whole, and the other way round.

    ``prune_state_dict`` drops every layer that no list names, so pruning one stack takes all layers from the other, and
    loading ends with "Missing key(s) in state_dict".
    """
    original = checkpoint_utils.prune_state_dict
    if hasattr(original, "__wrapped__"):
        return

    @functools.wraps(original)
    def prune_state_dict(state_dict, model_cfg):
        lists = {stack: getattr(model_cfg, f"{stack}_layers_to_keep", None) for stack in ("encoder", "decoder")}
        whole = tuple(f"{stack}." for stack, keep in lists.items() if not keep)
        if len(whole) != 1:
            return original(state_dict, model_cfg)
        kept = {name: tensor for name, tensor in state_dict.items() if name.startswith(whole)}
        rest = {name: tensor for name, tensor in state_dict.items() if name not in kept}
        return {**original(rest, model_cfg), **kept}

    checkpoint_utils.prune_state_dict = prune_state_dict


def keep_untrained_tensors_in_ema():
    """Keep frozen parameters and constant buffers bit for bit in the copy of ``--store-ema``.

    The moving average is taken of every tensor of the model, but ``d * x + (1 - d) * x`` is not ``x`` when rounded: a
    frozen tensor drifts away from itself, a little with every update; an integer buffer ends the run ("result type
    Float can't be cast to ... Long"). An entry that equals its average already is left as it is; which ones do is found
    out on the device, without waiting for it. What is trained is left to fairseq.
    """
    original = EMA._step_internal
    if hasattr(original, "__wrapped__"):
        return

    @functools.wraps(original)
    def step(self, new_model, updates=None):
        trained = {name for name, p in new_model.named_parameters(remove_duplicate=False) if p.requires_grad}
        state = new_model.state_dict()
        left = trained | self.skip_keys
        ours = {k for k, value in state.items() if k not in left and "version" not in k and isinstance(value, torch.Tensor)}
        rest = {name: value for name, value in state.items() if name not in ours}
        original(self, SimpleNamespace(state_dict=lambda: rest), updates)
        copied = self.model.state_dict()
        averages = self.fp32_params if self.config.ema_fp32 else copied
        for name in ours & averages.keys():
            average, tensor = averages[name], state[name].to(averages[name].dtype)
            if tensor.is_floating_point():
                moved = (average * self.decay).add_(tensor, alpha=1 - self.decay)
                tensor = torch.where(average == tensor, average, moved)
            average.copy_(tensor)
            copied[name].copy_(average)

    EMA._step_internal = step


def store_shared_tensors_once():
    """Keep tied tensors tied when the trainer brings a checkpoint to the CPU.

    fairseq moves and widens every entry by itself. From a GPU, or trained in half precision, each name of a tied
    embedding becomes a tensor of its own, and the file holds it that many times.
    """
    original = utils.move_to_cpu
    tied = torch.zeros(1, dtype=torch.float16)
    both = original([tied, tied])
    if both[0].data_ptr() == both[1].data_ptr():
        return

    @functools.wraps(original)
    def move_to_cpu(sample):
        moved = {}

        def move(tensor):
            place = (tensor.device, tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride())
            if tensor.numel() == 0 or place not in moved:
                moved[place] = original([tensor])[0]  # in a list, since by itself a number has no length
            return moved[place]

        return utils.apply_to_sample(move, sample)

    utils.move_to_cpu = move_to_cpu


def hush_hydra():
    """Hide the advice that hydra gives about fairseq's own use of it.

    Every command starts with some twenty lines of deprecation warnings that no user can act upon and that bury the
    message of a mistyped flag. Filters that the user has set come first.
    """
    warnings.filterwarnings("ignore", category=UserWarning, module=r"hydra\.", append=True)
    warnings.filterwarnings("ignore", message=r"\s*'\w+' is validated against ConfigStore schema", append=True)
