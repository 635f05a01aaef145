"""Repairs of what fairseq reads from checkpoints and puts into them; ``saving`` is about how it writes them."""

import argparse

import torch
from fairseq import checkpoint_utils, utils

from . import numpy_values
from .repair import repair, wrap


@repair("no-programs")
def load_no_programs():
    """Say ``weights_only=True`` for every ``torch.load`` that says nothing, whatever the environment says.

    fairseq says nothing anywhere. With TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD, which many set to get over the error below, a
    checkpoint from elsewhere may run any program. A call that says ``weights_only=False`` knows what it does.
    """

    def load(original, f, map_location=None, pickle_module=None, *, weights_only=None, **kwargs):
        if weights_only is None and pickle_module is None:
            weights_only = True
        return original(f, map_location, pickle_module, weights_only=weights_only, **kwargs)

    wrap(torch, "load", load)


@repair("safe-classes")
def trust_classes_in_checkpoints():
    """Let ``torch.load`` read fairseq's checkpoints.

    Since torch 2.6 it unpickles only classes it knows to be harmless. fairseq stores the model's flags as an
    ``argparse.Namespace``, and with ``--eval-bleu`` counts as numpy arrays: resuming, generating and validating end
    with ``Unsupported global: argparse.Namespace``.
    """
    torch.serialization.add_safe_globals([argparse.Namespace, *numpy_values.CONSTRUCTORS])


@repair("pruned-stacks")
def keep_the_stack_that_is_not_pruned():
    """Let ``--encoder-layers-to-keep`` alone leave the decoder whole, and the other way round.

    ``prune_state_dict`` drops every layer that no list names, so pruning one stack takes all layers from the other, and
    loading ends with "Missing key(s) in state_dict".
    """

    def prune_state_dict(original, state_dict, model_cfg):
        lists = {stack: getattr(model_cfg, f"{stack}_layers_to_keep", None) for stack in ("encoder", "decoder")}
        whole = tuple(f"{stack}." for stack, keep in lists.items() if not keep)
        if len(whole) != 1:
            return original(state_dict, model_cfg)
        kept = {name: tensor for name, tensor in state_dict.items() if name.startswith(whole)}
        rest = {name: tensor for name, tensor in state_dict.items() if name not in kept}
        return {**original(rest, model_cfg), **kept}

    wrap(checkpoint_utils, "prune_state_dict", prune_state_dict)


def _parts_tied_tensors() -> bool:
    tied = torch.zeros(1, dtype=torch.float16)
    both = utils.move_to_cpu([tied, tied])
    return both[0].data_ptr() != both[1].data_ptr()


@repair("tied-tensors", needed=_parts_tied_tensors)
def store_shared_tensors_once():
    """Keep tied tensors tied when the trainer brings a checkpoint to the CPU.

    fairseq moves and widens every entry by itself. From a GPU, or trained in half precision, each name of a tied
    embedding becomes a tensor of its own, and the file holds it that many times.
    """

    def move_to_cpu(original, sample):
        moved = {}

        def move(tensor):
            view = (tensor.device, tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride())
            if tensor.numel() == 0 or view not in moved:
                moved[view] = original([tensor])[0]  # in a list, since by itself a number has no length
            return moved[view]

        return utils.apply_to_sample(move, sample)

    wrap(utils, "move_to_cpu", move_to_cpu)
