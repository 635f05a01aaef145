"""Repairs of the contents of checkpoints and of how fairseq reads them. The module ``saving`` repairs how fairseq writes them."""

import argparse
import copyreg
import re

import torch
from fairseq import checkpoint_utils, utils
from fairseq.dataclass.constants import ChoiceEnum, StrEnumMeta

from ..errors import InputError
from . import numpy_values
from .given import Given
from .repair import repair, wrap


@repair("no-programs")
def load_no_programs():
    """Run no program in a checkpoint: pass ``weights_only=True`` to each ``torch.load`` that does not set it.

    fairseq never sets ``weights_only``. Many users set TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD to avoid the error that
    ``trust_classes_in_checkpoints`` describes. With this variable, a checkpoint from another person could run any program. A call with
    ``weights_only=False`` is not changed.
    """

    def load(original, f, map_location=None, pickle_module=None, *, weights_only=None, **kwargs):
        if weights_only is None and pickle_module is None:
            weights_only = True
        return original(f, map_location, pickle_module, weights_only=weights_only, **kwargs)

    wrap(torch, "load", load)


@repair("safe-classes")
def trust_classes_in_checkpoints():
    """Let ``torch.load`` read fairseq's checkpoints.

    Since torch 2.6, ``torch.load`` unpickles only objects of listed, harmless classes. fairseq stores the model's flags as an
    ``argparse.Namespace``, and with ``--eval-bleu`` also n-gram counts as numpy arrays. Without this repair, resuming, generating and
    validating end with ``Unsupported global: argparse.Namespace``.
    """
    torch.serialization.add_safe_globals([argparse.Namespace, *numpy_values.CONSTRUCTORS])


@repair("pruned-stacks")
def prune_each_stack_once():
    """Prune each stack only once with ``--encoder-`` and ``--decoder-layers-to-keep`` (fairseq #1403).

    Each flag gives a list of layers. ``prune_state_dict`` drops every layer that no list contains. If only one stack has a list, all
    layers of the other stack are removed. A training renumbers the kept layers and saves them together with the list. When fairseq
    resumes or translates, it prunes the kept layers again, and ends with "Missing key(s) in state_dict". With an architecture of
    ``TransformerModel``, no list from the command line works, because fairseq parses the list as numbers and later expects text.

    With this repair, a stack that has as many layers as its list has numbers is not pruned again. ``trainer.reading_flags`` calls
    ``write_layers_as_text``.
    """

    def prune_state_dict(original, state_dict, model_cfg):
        given = Given(model_cfg)
        lists = {"encoder": given.encoder_layers_to_keep, "decoder": given.decoder_layers_to_keep}
        to_prune = [stack for stack, keep in lists.items() if keep and _is_whole(state_dict, stack, keep)]
        if not to_prune:
            return state_dict
        stacks = tuple(f"{stack}." for stack in to_prune)
        whole = {name: tensor for name, tensor in state_dict.items() if name.startswith(stacks)}
        return {name: tensor for name, tensor in state_dict.items() if name not in whole} | original(whole, model_cfg)

    wrap(checkpoint_utils, "prune_state_dict", prune_state_dict)


def write_layers_as_text(flags) -> None:
    """Convert ``--encoder-layers-to-keep`` and ``--decoder-layers-to-keep`` to the text that fairseq reads, such as "0,2".

    Raises:
        InputError: a list repeats a number, or has the number of a layer that does not exist.
    """
    if not prune_each_stack_once.is_applied:
        return
    given = Given(flags)
    for stack, keep, depth in (
        ("encoder", given.encoder_layers_to_keep, given.encoder_layers),
        ("decoder", given.decoder_layers_to_keep, given.decoder_layers),
    ):
        if isinstance(keep, list):
            _check_layers(stack, keep, depth)
            setattr(flags, f"{stack}_layers_to_keep", ",".join(map(str, keep)))


def _check_layers(stack, keep, depth):
    if depth and (len(set(keep)) < len(keep) or not set(keep) <= set(range(depth))):
        text = ",".join(map(str, keep))
        raise InputError(
            f"--{stack}-layers-to-keep {text!r}: give layer numbers between 0 and {depth - 1} without repeats, for example 0,2"
        )


def _is_whole(state_dict, stack, keep):
    """Whether a stack still has to be pruned to ``keep``, such as "0,2"."""
    found = (re.match(rf"{stack}\b.*?\.layers\.(\d+)\.", name) for name in state_dict)
    depth = len({match[1] for match in found if match})
    named = [int(number) if number.strip().isdecimal() else number for number in keep.split(",")]
    if depth in (0, len(named)):
        return False
    _check_layers(stack, named, depth)
    return True


@repair("pickled-choices")
def pickle_choices():
    """Let pickle and ``torch.save`` write models with a configuration, such as ``transformer_lm``.

    Their configuration has classes of ``ChoiceEnum``. All these classes are named ``Choices``, so pickle cannot find them by name.
    """

    def reduce(kind):
        return (ChoiceEnum, ([*kind.__members__],)) if kind.__name__ == "Choices" else kind.__qualname__

    copyreg.pickle(StrEnumMeta, reduce)


def _separates_tied_tensors() -> bool:
    tied = torch.zeros(1, dtype=torch.float16)
    both = utils.move_to_cpu([tied, tied])
    return both[0].data_ptr() != both[1].data_ptr()


@repair("tied-tensors", needed=_separates_tied_tensors)
def store_shared_tensors_once():
    """Keep tied tensors tied when the trainer copies a checkpoint to the CPU.

    fairseq copies and converts every entry of the state dict separately. After a training on a GPU or in half precision, the file contains
    one copy of a tied embedding for each of its names.
    """

    def move_to_cpu(original, sample):
        moved = {}

        def move(tensor):
            view = (tensor.device, tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride())
            if tensor.numel() == 0 or view not in moved:
                # In a list, because fairseq calls len(), which a 0-dimensional tensor does not have.
                moved[view] = original([tensor])[0]
            return moved[view]

        return utils.apply_to_sample(move, sample)

    wrap(utils, "move_to_cpu", move_to_cpu)
