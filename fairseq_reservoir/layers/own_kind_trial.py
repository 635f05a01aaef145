"""Builds a layer of a user's own kind, and tries it on a few numbers before any data is touched."""

from typing import Any, NoReturn

import torch
from torch import Tensor

from ..errors import InputError, in_one_line
from ..plan.kinds import Kind
from .base import Slot, SlotConfig, build_slot

ARTICLES = {"encoder": "an", "decoder": "a"}
_TIME, _BATCH, _SOURCE = 4, 2, 3
_TOLERANCE = 1e-3


def build_own(kind: Kind, stack: str, config: SlotConfig) -> Slot:
    """A layer of ``kind``, which gives numbers of the shape it is given and sees neither padding nor, in a decoder, later words.

    Raises:
        InputError: it cannot be built, or does otherwise; one line with its name and the file that registered it.
    """
    try:
        layer = build_slot(kind.letter, stack, config)
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            _try(layer.eval(), stack, config)
    except InputError:
        raise
    except Exception as error:  # whatever a user's layer may raise
        what = in_one_line(f"{type(error).__name__}: {error}")
        raise InputError(
            f"layer {kind.letter} ({kind.name}) of {kind.registered_by}, in {ARTICLES[stack]} {stack}: {what}"
        ) from error
    layer.train()
    return layer


def _try(layer: Slot, stack: str, config: SlotConfig) -> None:
    x = torch.randn(_TIME, _BATCH, config.embed_dim)
    if stack == "encoder":
        whole = _shape_of_input(layer(x), x)
        mask = torch.zeros(_BATCH, _TIME, dtype=torch.bool, device=x.device)
        mask[:, -2:] = True
        padded = _shape_of_input(layer(x, encoder_padding_mask=mask), x)
        _compare(padded[:-2], layer(x[:-2]), "padding changes what it makes of words; see context.padding_mask")
        return
    memory = torch.randn(_SOURCE, _BATCH, config.memory_dim) if config.memory_dim else None
    whole = _shape_of_input(layer(x, memory)[0], x)
    _compare(
        layer(x[:2], memory)[0], whole[:2], "it sees later words; give its row refused={'decoder': 'it reads ...'}"
    )
    state: dict[str, Any] = {}
    steps = [layer(x[t : t + 1], memory, incremental_state=state)[0] for t in range(_TIME)]
    _compare(torch.cat(steps), whole, "word by word it gives other numbers; see context.incremental_state")


def _shape_of_input(y: Tensor, x: Tensor) -> Tensor:
    if not isinstance(y, Tensor) or y.shape != x.shape:
        found = tuple(y.shape) if isinstance(y, Tensor) else type(y).__name__
        _fail(f"gives {found}, must give (time, batch, embed_dim) as it is given, {tuple(x.shape)}")
    return y


def _compare(found: Tensor, expected: Tensor, otherwise: str) -> None:
    if not found.is_meta and not torch.allclose(found, expected, rtol=_TOLERANCE, atol=_TOLERANCE):
        _fail(otherwise)


def _fail(what: str) -> NoReturn:
    raise ValueError(what)
