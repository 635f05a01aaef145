"""Starts one stack of a model, its encoder or its decoder, from another model's: ``--start-encoder-from``, ``--start-decoder-from``.

The other model may be of another kind: a RoBERTa's encoder serves a translation model, as does a language model's decoder, in which
the attention to the source then starts as usual. fairseq's ``--finetune-from-model`` takes whole models of one kind alone.
"""

import logging
from typing import Any

import torch
from torch import Tensor, nn

from ..checkpoint.ledger import ledger
from ..checkpoint.opened import read_state
from ..checkpoint.training_start import goes_on
from ..errors import InputError

logger = logging.getLogger(__name__)
STACKS = ("encoder", "decoder")
# RoBERTa's encoder is the stack and the head of the masked language model.
_PREFIXES = {"encoder": ("encoder.sentence_encoder.", "encoder."), "decoder": ("decoder.",)}
_NO_VALUES = ("version", "_float_tensor")  # marks that fairseq keeps among the tensors


def start(init, trainer, cfg, task, model, *args, **kwargs):
    """A hook of the trainer's start: fairseq has built the model, and no optimizer. A training that goes on takes what it has saved."""
    for stack in STACKS:
        path = getattr(cfg.model, f"start_{stack}_from", None)
        if path and not goes_on(cfg.checkpoint):
            start_stack(model, stack, path)
    init(trainer, cfg, task, model, *args, **kwargs)


@torch.no_grad()
def start_stack(model: nn.Module, stack: str, path: str) -> None:
    """Writes the tensors of a checkpoint's stack into a model's; all of them, and under the same names.

    What may be missing there are adapters and, where the checkpoint has none at all, the attention to the source.

    Args:
        model: as fairseq has built it, frozen and drawn.
        stack: ``encoder`` or ``decoder``.
        path: a checkpoint or an export of a translation model, a language model or a RoBERTa.

    Raises:
        InputError: the model has no such stack or draws a part of it from the seed; or the checkpoint's has other tensors.
    """
    given = f"--start-{stack}-from {path}"
    ours, prefix = _of_stack(model.state_dict(), stack)
    if not ours:
        raise InputError(f"{given}: the model has no {stack}; leave the flag out")
    for name in getattr(model, "recipes", {}):
        if name.startswith(prefix):
            raise InputError(
                f"{given}: {name} is drawn from the seed and would be lost; give plans of trained layers, and --frozen-init model"
            )
    theirs, _ = _of_stack(read_state(path, f"--start-{stack}-from")["model"], stack)
    if not theirs:
        raise InputError(f"{given}: has no {stack}")
    added = {item.name.removeprefix(prefix) for item in ledger(model).items if item.is_folded}
    if not any("encoder_attn" in name for name in theirs):
        added |= {name for name in ours if "encoder_attn" in name}
    _refuse_others(given, stack, {name: ours[name] for name in ours if name not in added}, theirs)
    for name, tensor in theirs.items():
        ours[name].copy_(tensor)
    rest = len(ours) - len(theirs)
    also = f"; {rest} that it does not have (adapters, attention to the source) start as usual" if rest else ""
    logger.info("%s: all %d tensors of its %s taken%s", given, len(theirs), stack, also)


def _of_stack(tensors: dict[str, Tensor], stack: str) -> tuple[dict[str, Tensor], str]:
    """The tensors of a stack by their names in it, and what these begin with."""
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
                f"{given}: has no {name}, which the model's {stack} has; give flags for the shape of that one"
            )
        if theirs[name].shape != tensor.shape:
            what = "words of another dictionary or another width" if "embed_tokens" in name else "another shape"
            raise InputError(f"{given}: its {name} is {_sizes(theirs[name])}, in the model {_sizes(tensor)}: {what}")
    for name in theirs:
        if name not in ours:
            raise InputError(
                f"{given}: has {name}, which the model's {stack} does not have; give flags for the shape of that one"
            )


def _sizes(tensor: Tensor) -> Any:
    return " x ".join(map(str, tensor.shape)) or "one number"
