"""Lists of parameters and gradients for torch's operations on lists of tensors. Results computed from these lists are cached."""

from collections.abc import Callable, Sequence
from operator import is_
from typing import Any
from weakref import ref

import torch
from torch import Tensor


def same(first: Sequence[Any], second: Sequence[Any]) -> bool:
    """Whether two sequences contain the same objects. Values are not compared."""
    return len(first) == len(second) and all(map(is_, first, second))


class GradientLists:
    """The gradients of a list of parameters, and a result computed from both lists.

    ``compute(parameters, gradients)`` returns the result, for example whether all tensors are float32. ``compute`` gets only the
    parameters that have a gradient. ``compute`` is called again only if a parameter or a gradient has been replaced by another tensor.
    Gradients are held by weak references, so they are not kept in memory.
    """

    def __init__(self, compute: Callable[[list[Tensor], list[Tensor]], Any]) -> None:
        self._compute = compute
        self._parameters: list[Tensor] = []
        self._references: list[ref[Tensor]] = []  # to the gradients
        self._properties: Any = None

    def get(self, parameters: Sequence[Tensor]) -> tuple[list[Tensor], Any]:
        """Return the gradients of all ``parameters`` that have one, and the result of ``compute``."""
        found = [p.grad for p in parameters]
        gradients = [gradient for gradient in found if gradient is not None]
        trained = (
            parameters if len(gradients) == len(found) else [p for p, g in zip(parameters, found) if g is not None]
        )
        known = same(trained, self._parameters) and same(gradients, [reference() for reference in self._references])
        if not known or self._properties is None:
            self._properties = self._compute(list(trained), gradients)
            self._parameters, self._references = list(trained), [ref(gradient) for gradient in gradients]
        return gradients, self._properties


class ListCopy:
    """Copies a list of source tensors to a list of target tensors, with one operation for each pair of dtypes.

    torch launches one kernel for a list only if all tensors have the same dtype. A half-precision model can have several dtypes, because
    scores of masks are float32. The dtypes are cached until a target is replaced, or a source changes from None to a tensor or back.
    References to sources are not kept.
    """

    def __init__(self) -> None:
        self._targets: Sequence[Tensor] = []
        self._present: list[bool] = []  # whether each target has a source
        self._places: list[list[int]] = []  # for each pair of dtypes: indices into both lists
        self._missing: list[int] = []

    @torch.no_grad()
    def __call__(self, targets: Sequence[Tensor], sources: Sequence[Tensor | None]) -> None:
        """Copy each source to the target with the same index. If a source is None, set its target to 0."""
        present = [source is not None for source in sources]
        if present != self._present or not same(targets, self._targets):
            pairs = [None if s is None else (t.dtype, s.dtype) for t, s in zip(targets, sources)]
            kinds = dict.fromkeys(pair for pair in pairs if pair)
            self._places = [[place for place, pair in enumerate(pairs) if pair == kind] for kind in kinds]
            self._missing = [place for place, pair in enumerate(pairs) if pair is None]
            self._targets, self._present = list(targets), present
        for places in self._places:
            torch._foreach_copy_(_taken(targets, places), _taken(sources, places))
        if self._missing:
            torch._foreach_zero_(_taken(targets, self._missing))


def _taken(tensors, places):
    return tensors if len(places) == len(tensors) else [tensors[place] for place in places]
