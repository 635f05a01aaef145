"""Layer plans: one letter per layer slot of a stack, as in ``LLFLFLL`` or ``2LF2LF``.

A slot is a place for one layer. Most capital letters stand for a frozen random layer. The small letter stands for the same layer, but
trained. Exceptions: ``L`` is fairseq's trained Transformer layer, ``T`` is the same layer frozen, and ``M`` has no parameters to freeze.
``kinds`` defines all letters.
"""

import re
from dataclasses import dataclass
from itertools import groupby
from typing import NoReturn

from ..errors import InputError, whole_number
from . import kinds
from .kinds import WHOLE, Kind

PLACEMENTS = ("alternate", "bottom", "middle", "top")
# Depth of the deepest Transformer in the literature (DeepNet; Wang et al., 2022).
MOST_LAYERS = 1000


@dataclass(frozen=True)
class Slot:
    """One layer of a stack.

    ``origin`` is the layer's number in the unpruned plan, counted from 0. The names of frozen tensors contain this number. It differs from
    the layer's position only if ``--encoder-layers-to-keep`` or ``--decoder-layers-to-keep`` removes layers.
    """

    letter: str
    origin: int

    @property
    def frozen(self) -> bool:
        """Whether the letter freezes the whole layer. In a decoder, only T also freezes the attention to the source."""
        return self.random and self.kind.freezes == WHOLE

    @property
    def random(self) -> bool:
        """Whether the letter freezes anything."""
        return self.letter == self.kind.frozen_letter

    @property
    def kind(self) -> Kind:
        """Kind of the layer. L and T have the same kind, because T is a frozen L."""
        return kinds.kind_of(self.letter)

    def freezes(self, atom: str) -> bool:
        """Whether the letter freezes the layer's tensors with this atom. A sublayer ``cross`` is an exception (see ``Kind``)."""
        return self.random and (self.kind.freezes == WHOLE or atom in self.kind.freezes)


@dataclass(frozen=True)
class Plans:
    """Layer slots of a model: stack -> slots from the bottom to the top.

    Attributes:
        built: the slots of the built model.
        unpruned: all slots, including those that ``--encoder-layers-to-keep`` or ``--decoder-layers-to-keep`` removes.
    """

    built: dict[str, tuple[Slot, ...]]
    unpruned: dict[str, tuple[Slot, ...]]


def expand(plan: str, flag: str, stack: str = "encoder") -> str:
    """Expand run lengths: ``4L2F`` -> ``LLLLFF``.

    Args:
        plan: letters of ``kinds``, each with an optional count before it.
        flag: the plan's flag, for messages.
        stack: ``encoder`` or ``decoder``. A decoder allows fewer letters.

    Raises:
        InputError: the plan is empty or has more than ``MOST_LAYERS`` layers; a letter is unknown or not allowed in this stack; a count is
            0; or no letter follows a count.
    """

    def refuse(reason: str) -> NoReturn:
        allowed = " ".join(kinds.letters_where())
        raise InputError(
            f"{flag} {plan!r}: {reason}; a plan consists of the letters {allowed}, for example LLFLFLL or 2LF2LF"
        )

    if not plan:
        refuse("the plan is empty")
    letters, length = [], 0
    for count, letter in re.findall(r"([0-9]*)([^0-9]?)", plan):
        if not letter:
            if count:
                refuse(f"no letter follows the count {count}")
            continue
        if letter == "R":
            refuse(
                f"R does not stand for one kind of layer; use {kinds.listed(kinds.reservoir_types().values(), 'or')}"
            )
        if letter not in kinds.letters_where():
            refuse(f"unknown letter {letter!r}")
        number = whole_number(count) if count else 1
        if number == 0:
            refuse(f"a count of 0 before {letter}")
        if reason := kinds.kind_of(letter).refused.get(stack):
            refuse(f"{letter} is not allowed in {'an' if stack[0] in 'aeiou' else 'a'} {stack}: {reason}")
        if number is None or length + number > MOST_LAYERS:
            refuse(f"more than {MOST_LAYERS} layers")
        letters.append(letter * number)
        length += number
    return "".join(letters)


def compress(plan: str) -> str:
    """Write an expanded plan with run lengths: ``LLLLFF`` -> ``4LFF``. Runs of one or two letters stay as they are."""
    runs = ((letter, len(list(run))) for letter, run in groupby(plan))
    return "".join(letter * n if n <= 2 else f"{n}{letter}" for letter, n in runs)


def plan_by_count(layers: int, count: int, reservoir_type: str, placement: str, flag: str = "--reservoir-count") -> str:
    """Make a plan of ``layers`` slots with ``count`` reservoirs.

    Args:
        layers: depth N.
        count: number of reservoirs R, 0 <= R <= N.
        reservoir_type: key of ``kinds.reservoir_types()``.
        placement: ``bottom``, ``middle`` and ``top`` put the reservoirs in one block. ``alternate`` puts them at
            ``s, s + 2, ..., s + 2(R - 1)`` with ``s = floor((N - (2R - 1)) / 2)``, centred as in Reservoir Transformers:
            N = 7, R = 3 gives LRLRLRL, and N = 7, R = 2 gives LLRLRLL. If N - (2R - 1) is odd, exact centring is impossible, and
            the paper does not specify the rounding. We round down: N = 6, R = 2 gives LRLRLL. ``middle`` rounds in the same way.

    Raises:
        InputError: the reservoirs do not fit (``alternate`` needs 2R - 1 <= N), or the type or placement is unknown.
    """
    types = kinds.reservoir_types()
    if reservoir_type not in types:
        raise InputError(f"--reservoir-type {reservoir_type!r}: choose from {', '.join(types)}")
    if placement not in PLACEMENTS:
        raise InputError(f"--reservoir-placement {placement!r}: choose from {', '.join(PLACEMENTS)}")
    most = (layers + 1) // 2 if placement == "alternate" else layers
    if not 0 <= count <= most:
        raise InputError(
            f"{flag} {count}: {layers} layers with --reservoir-placement {placement} have room for 0 to {most} reservoirs"
        )
    start, step = {
        "alternate": ((layers - (2 * count - 1)) // 2, 2),
        "bottom": (0, 1),
        "middle": ((layers - count) // 2, 1),
        "top": (layers - count, 1),
    }[placement]
    plan = ["L"] * layers
    for i in range(count):
        plan[start + step * i] = types[reservoir_type]
    return "".join(plan)


def slots(plan: str, layers_to_keep: str | None = None, flag: str = "--encoder-layers-to-keep") -> tuple[Slot, ...]:
    """Return the slots of an expanded plan. With ``layers_to_keep``, such as ``"0,2,5"``, return only the slots with these numbers."""
    everything = tuple(Slot(letter, i) for i, letter in enumerate(plan))
    return tuple(everything[i] for i in layers_kept(layers_to_keep, len(plan), flag)) if layers_to_keep else everything


def layers_kept(layers_to_keep: str | list[int], depth: int, flag: str) -> list[int]:
    """Return the sorted numbers of the layers to keep in a stack of ``depth`` layers: ``"2,0"`` -> ``[0, 2]``.

    ``layers_to_keep`` is a list if it comes from the command line of one of fairseq's own models. In all other cases it is text.

    Raises:
        InputError: the text is not a comma-separated list of layers of this stack, or names a layer twice.
    """
    text = layers_to_keep if isinstance(layers_to_keep, str) else ",".join(map(str, layers_to_keep))
    numbers = [whole_number(k.strip()) for k in text.split(",")]
    keep = [depth if k is None else k for k in numbers]
    if max(keep) >= depth or len(set(keep)) < len(keep):
        raise InputError(
            f"{flag} {text!r}: give layer numbers between 0 and {depth - 1} without repeats, for example 0,2"
        )
    return sorted(keep)
