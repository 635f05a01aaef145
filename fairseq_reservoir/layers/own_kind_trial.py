"""Builds a layer of a user's own kind, and tries it on a few numbers before any data is touched."""

from typing import Any, NoReturn

import torch
from torch import Tensor

from ..errors import InputError, in_one_line
from ..plan.freeze_spec import is_bias
from ..plan.kinds import Kind
from .base import Slot, SlotConfig, build_slot

ARTICLES = {"encoder": "an", "decoder": "a"}
_TIME, _BATCH, _SOURCE = 4, 2, 3
_TOLERANCE = 1e-3
_SECOND_TIME = "asked a second time it gives other numbers, though nothing trains; dropout has to mind self.training"


def build_own(kind: Kind, stack: str, config: SlotConfig) -> Slot:
    """A layer of ``kind``, which gives numbers of the shape it is given, the same whenever it is asked, and sees neither padding nor,
    in a decoder, later words.

    Where the model is built without values, on the device ``meta``, a second layer is made to be tried.

    Raises:
        InputError: it cannot be built, or does otherwise; one line with its name and the file that registered it.
    """
    try:
        layer = build_slot(kind.letter, stack, config)
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            if torch.get_default_device().type == "meta":
                with torch.device("cpu"):
                    _try(build_slot(kind.letter, stack, config).eval(), kind, stack, config)
            else:
                _try(layer.eval(), kind, stack, config)
    except InputError:
        raise
    except Exception as error:  # whatever a user's layer may raise
        what = in_one_line(f"{type(error).__name__}: {error}")
        raise InputError(
            f"layer {kind.letter} ({kind.name}) of {kind.registered_by}, in {ARTICLES[stack]} {stack}: {what}"
        ) from error
    layer.train()
    return layer


def _try(layer: Slot, kind: Kind, stack: str, config: SlotConfig) -> None:
    x = torch.randn(_TIME, _BATCH, config.embed_dim)
    if stack == "encoder":
        whole = _numbers(layer(x), x)
        _compare(layer(x), whole, _SECOND_TIME)
        # fairseq pads sources before their words, unless it is told otherwise.
        for padding, words in ((slice(2), slice(2, None)), (slice(-2, None), slice(-2))):
            mask = torch.zeros(_BATCH, _TIME, dtype=torch.bool, device=x.device)
            mask[:, padding] = True
            padded = _numbers(layer(x, encoder_padding_mask=mask), x)
            _compare(padded[words], layer(x[words]), "padding changes what it makes of words; see context.padding_mask")
        return
    # One source for all sentences, so that these can change places below.
    memory = torch.randn(_SOURCE, 1, config.memory_dim).expand(-1, _BATCH, -1) if config.memory_dim else None
    whole = _numbers(layer(x, memory)[0], x)
    _compare(layer(x, memory)[0], whole, _SECOND_TIME)
    _compare(
        layer(x[:2], memory)[0], whole[:2], "it sees later words; give its row refused={'decoder': 'it reads ...'}"
    )
    if memory is not None and not kind.sees_source:
        _compare(layer(x, memory + 1)[0], whole, "it sees the source, and its row says sees_source=False")
    if memory is not None and kind.sees_source and "cross" not in dict(layer.named_children()):
        # What starts with a matrix or a factor of zeros may see it later.
        learns = [p for name, p in layer.named_parameters() if not is_bias(name)]
        if _alike(layer(x, memory + 1)[0], whole) and all(bool(p.any()) for p in learns):
            _fail("it does not see the source, and its row says sees_source=True; see cross_attention")
    _try_word_by_word(layer, x, memory, whole)


def _try_word_by_word(layer: Slot, x: Tensor, memory: Tensor | None, whole: Tensor) -> None:
    state: dict[str, Any] = {}
    steps = [layer(x[t : t + 1], memory, incremental_state=state)[0] for t in range(_TIME - 1)]
    otherwise = "word by word it gives other numbers; see context.incremental_state"
    _compare(torch.cat(steps), whole[:-1], otherwise)
    order = torch.arange(_BATCH).flip(0)
    for module in layer.modules():
        if hasattr(module, "reorder_incremental_state"):
            module.reorder_incremental_state(state, order)  # type: ignore[operator]  # a method, of any class
    last = layer(x[-1:, order], memory, incremental_state=state)[0]
    _compare(
        last, whole[-1:, order], "beam search takes one sentence's words for another's; see reorder_incremental_state"
    )


def _numbers(y: Tensor, x: Tensor) -> Tensor:
    if not isinstance(y, Tensor) or y.shape != x.shape:
        found = tuple(y.shape) if isinstance(y, Tensor) else type(y).__name__
        _fail(f"gives {found}, must give (time, batch, embed_dim) as it is given, {tuple(x.shape)}")
    if not y.isfinite().all():
        _fail("gives infinite numbers, or some that are none")
    return y


def _compare(found: Tensor, expected: Tensor, otherwise: str) -> None:
    if not _alike(found, expected):
        _fail(otherwise)


def _alike(found: Tensor, expected: Tensor) -> bool:
    return torch.allclose(found, expected, rtol=_TOLERANCE, atol=_TOLERANCE)


def _fail(what: str) -> NoReturn:
    raise ValueError(what)
