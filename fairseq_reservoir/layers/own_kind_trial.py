"""Build a layer of a user-defined kind and test it on random inputs, before any data is read."""

import sys
import traceback
from pathlib import Path
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
_SECOND_TIME = "a second call in evaluation mode returns different outputs; apply dropout only if self.training is True"


def build_own(kind: Kind, stack: str, config: SlotConfig) -> Slot:
    """Build a layer of a user-defined kind and test it.

    The outputs must have the input's shape and be the same at every call. They must not depend on padding or, in a decoder,
    on later tokens. If the model is built on the meta device, a second layer is built on the CPU for the test.

    Raises:
        InputError: the layer cannot be built, or fails the test. The message names the kind, and the module that registered it.
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
    except Exception as error:  # a user's layer may raise anything
        reason = in_one_line(f"{type(error).__name__}: {error}{_line_of(error, kind)}")
        raise InputError(
            f"layer {kind.letter} ({kind.name}) of {kind.registered_by}, in {ARTICLES[stack]} {stack}: {reason}"
        ) from error
    layer.train()
    return layer


def _line_of(error: Exception, kind: Kind) -> str:
    """Return the file and line in the user's package that raised the error, such as " (layers.py, line 7)"; "" if no line of it did."""
    module = sys.modules.get(kind.registered_by.partition(".")[0])
    file = getattr(module, "__file__", None)
    paths = {Path(path) for path in getattr(module, "__path__", [file] if file else [])}
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if paths & {Path(frame.filename), *Path(frame.filename).parents}
    ]
    return f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""


def _try(layer: Slot, kind: Kind, stack: str, config: SlotConfig) -> None:
    x = torch.randn(_TIME, _BATCH, config.embed_dim)
    if stack == "encoder":
        whole = _checked(layer(x), x)
        _compare(layer(x), whole, _SECOND_TIME)
        # fairseq pads sources on the left by default.
        for padding, tokens in ((slice(2), slice(2, None)), (slice(-2, None), slice(-2))):
            mask = torch.zeros(_BATCH, _TIME, dtype=torch.bool, device=x.device)
            mask[:, padding] = True
            padded = _checked(layer(x, encoder_padding_mask=mask), x)
            _compare(
                padded[tokens], layer(x[tokens]), "padding changes the outputs of tokens; use context.padding_mask"
            )
        return
    # All sentences have the same source, so that they can be reordered below.
    memory = torch.randn(_SOURCE, 1, config.memory_dim).expand(-1, _BATCH, -1) if config.memory_dim else None
    whole = _checked(layer(x, memory)[0], x)
    _compare(layer(x, memory)[0], whole, _SECOND_TIME)
    _compare(
        layer(x[:2], memory)[0],
        whole[:2],
        "the outputs depend on later tokens; set refused={'decoder': 'it reads later tokens'} in the Kind",
    )
    if memory is not None and not kind.sees_source:
        _compare(layer(x, memory + 1)[0], whole, "the outputs depend on the source; set sees_source=True in the Kind")
    if memory is not None and kind.sees_source and "cross" not in dict(layer.named_children()):
        # If a matrix or factor is 0 at the start, the outputs may depend on the source only after training.
        factors = [p for name, p in layer.named_parameters() if not is_bias(name)]
        if _alike(layer(x, memory + 1)[0], whole) and all(bool(p.any()) for p in factors):
            _fail("the outputs do not depend on the source; set sees_source=False in the Kind, or add cross_attention")
    _try_incremental(layer, x, memory, whole)


def _try_incremental(layer: Slot, x: Tensor, memory: Tensor | None, whole: Tensor) -> None:
    """Run a decoder layer on ``x`` token by token. Compare the outputs with ``whole``, the outputs for the complete sentences."""
    state: dict[str, Any] = {}
    steps = [layer(x[t : t + 1], memory, incremental_state=state)[0] for t in range(_TIME - 1)]
    _compare(
        torch.cat(steps),
        whole[:-1],
        "the outputs for one token at a time differ from the outputs for the whole sentence; store earlier tokens in "
        "context.incremental_state",
    )
    order = torch.arange(_BATCH).flip(0)
    for module in layer.modules():
        if hasattr(module, "reorder_incremental_state"):
            module.reorder_incremental_state(state, order)  # type: ignore[operator]  # a method, of any class
    last = layer(x[-1:, order], memory, incremental_state=state)[0]
    _compare(
        last,
        whole[-1:, order],
        "the outputs are wrong after beam search has reordered the sentences; define reorder_incremental_state",
    )


def _checked(y: Tensor, x: Tensor) -> Tensor:
    """Return the output ``y`` if it is finite and has the shape of the input ``x``."""
    if not isinstance(y, Tensor) or y.shape != x.shape:
        found = tuple(y.shape) if isinstance(y, Tensor) else type(y).__name__
        _fail(
            f"returned {found}; it must return a tensor of the input's shape, (time, batch, embed_dim) = {tuple(x.shape)}"
        )
    if not y.isfinite().all():
        _fail("returned infinite values or NaN")
    return y


def _compare(found: Tensor, expected: Tensor, failure: str) -> None:
    if not _alike(found, expected):
        _fail(failure)


def _alike(found: Tensor, expected: Tensor) -> bool:
    return torch.allclose(found, expected, rtol=_TOLERANCE, atol=_TOLERANCE)


def _fail(message: str) -> NoReturn:
    raise ValueError(message)
