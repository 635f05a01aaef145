"""Start the encoder or the decoder of a model from another model: ``--start-encoder-from``, ``--start-decoder-from``.

The encoder may come from a RoBERTa, and the decoder from a language model. A language model has no attention to the source, so the
decoder's attention to the source is initialised as usual. fairseq's ``--finetune-from-model`` can only load a whole model of the same
architecture.
"""

import logging
import re
from typing import Any

import torch
import torch.distributed as dist
from fairseq.modules import MultiheadAttention
from torch import Tensor, nn

from ..checkpoint.ledger import ledger
from ..checkpoint.meta_checkpoint import read_state
from ..checkpoint.origin import dictionaries_of
from ..checkpoint.other_dictionary import refuse_other_dictionary
from ..checkpoint.training_start import starts_from_checkpoint
from ..errors import InputError
from ..options.component_options import ComponentOptions
from ..options.reading import read
from ..random_tensors import digest
from .rank_flags import gather

logger = logging.getLogger(__name__)
STACKS = ("encoder", "decoder")
_SIDES = {"encoder": "source", "decoder": "target"}
# RoBERTa's encoder contains the stack and the head of the masked language model.
_PREFIXES = {"encoder": ("encoder.sentence_encoder.", "encoder."), "decoder": ("decoder.",)}
_NO_VALUES = ("version", "_float_tensor")  # entries of fairseq that are not weights


def start_stacks(cfg, task, model) -> None:
    """Start the stacks of a new model from the checkpoints that the flags name. A resumed training loads its own checkpoint later."""
    flags = read(ComponentOptions, cfg.model)
    given = {"encoder": flags.start_encoder_from, "decoder": flags.start_decoder_from}
    paths = {stack: path for stack, path in given.items() if path}
    if paths and not starts_from_checkpoint(cfg.checkpoint):
        taken = {stack: start_stack(model, stack, path, task) for stack, path in paths.items()}
        _refuse_other_values(model, paths, taken)
        _refuse_other_processes(paths, taken)


@torch.no_grad()
def start_stack(model: nn.Module, stack: str, path: str, task: Any) -> dict[str, Tensor]:
    """Copy all tensors of a checkpoint's stack into a model, under the same names.

    The checkpoint may lack the adapters. It may also lack all tensors of the attention to the source.

    Args:
        model: the model, already built, frozen and initialised.
        stack: ``encoder`` or ``decoder``.
        path: a checkpoint or an export of a translation model, a language model or a RoBERTa.
        task: the task of the training, with its dictionaries.

    Returns:
        The copied tensors by their names in the model.

    Raises:
        InputError: the model has no such stack, or draws tensors of the stack from the seed. Also raised if the checkpoint and the model
            differ in tensor names, shapes or the dictionary.
    """
    given = f"--start-{stack}-from {path}"
    ours, prefix = _of_stack(model.state_dict(), stack)
    if not ours:
        raise InputError(f"{given}: the model has no {stack}; remove the flag")
    for name in getattr(model, "recipes", {}):
        if name.startswith(prefix):
            raise InputError(
                f"{given}: {name} is drawn from the seed and would be overwritten; give layer plans with only trained layers, and "
                "--frozen-init model"
            )
    state = read_state(path, f"--start-{stack}-from")
    theirs, _ = _of_stack(_with_current_names(state["model"]), stack)
    for name, module in model.get_submodule(prefix[:-1]).named_modules():
        if isinstance(module, MultiheadAttention):  # old checkpoints have its projections in one tensor
            module.upgrade_state_dict_named(theirs, name)
    if not theirs:
        raise InputError(f"{given}: has no {stack}")
    refuse_other_dictionary(given, dictionaries_of(state), task, sides=(_SIDES[stack],))
    added = {item.name.removeprefix(prefix) for item in ledger(model).items if item.is_folded}
    if not any("encoder_attn" in name for name in theirs):
        added |= {name for name in ours if "encoder_attn" in name}
    _refuse_others(given, stack, {name: ours[name] for name in ours if name not in added}, theirs)
    for name, tensor in theirs.items():
        ours[name].copy_(tensor)
    rest = len(ours) - len(theirs)
    also = f"; the {rest} other tensors (adapters, attention to the source) are initialised as usual" if rest else ""
    logger.info("%s: all %d tensors of its %s copied%s", given, len(theirs), stack, also)
    return {prefix + name: tensor for name, tensor in theirs.items()}


def _refuse_other_values(model: nn.Module, paths: dict[str, str], taken: dict[str, dict[str, Tensor]]) -> None:
    """Refuse checkpoints that store a tensor of two modules, such as a shared embedding, twice and with different values.

    The model would keep only the values that are copied last.
    """
    ours = model.state_dict()
    for stack, tensors in taken.items():
        for name, tensor in tensors.items():
            if not ours[name].equal(tensor.to(ours[name])):
                raise InputError(
                    f"--start-{stack}-from {paths[stack]}: the model shares the tensor {name} between two modules, but the "
                    "values to copy for these modules differ; give flags with which the model does not share the tensor"
                )


def _refuse_other_processes(paths: dict[str, str], taken: dict[str, dict[str, Tensor]]) -> None:
    """Refuse a start in which ranks have copied different values. They can differ, because each rank reads the file on its own host."""
    if not dist.is_initialized():
        return
    found = "".join(digest.of_tensor(tensors[name]) for tensors in taken.values() for name in sorted(tensors))
    if len(set(gather(found))) > 1:
        given = " ".join(f"--start-{stack}-from {path}" for stack, path in paths.items())
        raise InputError(f"{given}: this file has different tensors on different hosts; all hosts need the same file")


def _with_current_names(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Rename the tensors of RoBERTa models from before 2020, as fairseq does when it loads a whole model."""
    renamed = {
        re.sub(r"^decoder\.(sentence_encoder|lm_head)\.", r"encoder.\1.", name): t for name, t in tensors.items()
    }
    return {name.replace(".emb_layer_norm.", ".layernorm_embedding."): tensor for name, tensor in renamed.items()}


def _of_stack(tensors: dict[str, Tensor], stack: str) -> tuple[dict[str, Tensor], str]:
    """Return the tensors of a stack, and the prefix of their names in the model. The names in the result lack this prefix."""
    for prefix in _PREFIXES[stack]:
        found = {
            name.removeprefix(prefix): tensor
            for name, tensor in tensors.items()
            if name.startswith(prefix) and not name.endswith(_NO_VALUES)
        }
        if found:
            return found, prefix
    return {}, ""


def _refuse_others(given: str, stack: str, ours: dict[str, Tensor], theirs: dict[str, Tensor]) -> None:
    for name, tensor in ours.items():
        if name not in theirs:
            raise InputError(
                f"{given}: does not contain {name}, but the model's {stack} does; give the flags with which this {stack} was trained"
            )
        if theirs[name].shape != tensor.shape:
            cause = " (another dictionary or another width)" if "embed_tokens" in name else ""
            raise InputError(
                f"{given}: its {name} has the shape {_sizes(theirs[name])}, but {_sizes(tensor)} in the model{cause}"
            )
    for name in theirs:
        if name not in ours:
            raise InputError(
                f"{given}: contains {name}, but the model's {stack} does not; give the flags with which this {stack} was trained"
            )


def _sizes(tensor: Tensor) -> Any:
    return " x ".join(map(str, tensor.shape)) or "one number"
