"""The flags that ``freeze_skip`` adds to the flags of its inner optimizer, and functions that parse the added flags."""

import functools
from dataclasses import dataclass
from typing import Optional

from ..errors import InputError, whole_number
from ..plan import freeze_spec
from .flags import Flags, option


@dataclass
class FreezeSkipOptions(Flags):
    """The flags of ``freeze_skip``. Components are written as for ``--freeze``."""

    freeze_schedule: Optional[str] = option(
        None,
        "freeze components from an update on (UPDATE:COMPONENTS), or train them again (UPDATE:-COMPONENTS). Separate entries by "
        "semicolons, and sort them by update. Frozen parameters have no updates, weight decay, momentum or optimizer memory. Example: "
        '"0:emb;2000:encoder.layers.0-2;8000:-emb"',
        "ENTRIES",
    )
    freeze_progressive: Optional[str] = option(
        None,
        "freeze the layers of every stack from the bottom up: the first layer at update START, then one more layer every EVERY "
        "updates. The top layer of a stack stays trained. Example: 2000:500",
        "START:EVERY",
    )
    freeze_rotate: Optional[str] = option(
        None,
        "train K randomly drawn layers, freeze all other layers, and draw again every PERIOD updates (LISA). Parameters outside the "
        "layers, such as embeddings, are always trained. Example: 2:200",
        "K:PERIOD",
    )
    freeze_update_every: Optional[str] = option(
        None,
        "update components only in every N-th update: COMPONENT:N items, separated by commas. In the other updates, the gradients of "
        "these components are not computed, and their momentum is kept. Example: ffn:4,emb:2",
        "ITEMS",
    )


@dataclass(frozen=True)
class Change:
    """A scheduled change: at ``update``, freeze the parameters of ``spec``, or train them again.

    If no freeze spec selects exactly the changed parameters, ``names`` lists them.
    """

    update: int
    spec: str
    freeze: bool
    flag: str
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class FreezeSkipSettings:
    """The parsed flags of ``freeze_skip``.

    Attributes:
        schedule: the changes of ``--freeze-schedule``.
        progressive: (START, EVERY) of ``--freeze-progressive``.
        rotate: (K, PERIOD) of ``--freeze-rotate``.
        update_every: pairs (spec, N) of ``--freeze-update-every``.
    """

    schedule: tuple[Change, ...]
    progressive: tuple[int, int] | None
    rotate: tuple[int, int] | None
    update_every: tuple[tuple[str, int], ...]


def resolve(options: FreezeSkipOptions) -> FreezeSkipSettings:
    """Parse the flags. The result is cached.

    Raises:
        InputError: a flag has an invalid value.
    """
    return _resolve(
        options.freeze_schedule, options.freeze_progressive, options.freeze_rotate, options.freeze_update_every
    )


@functools.cache
def _resolve(schedule, progressive, rotate, update_every) -> FreezeSkipSettings:
    return FreezeSkipSettings(
        schedule=tuple(_parse_schedule(schedule)),
        progressive=_pair(progressive, "--freeze-progressive", "START:EVERY", (0, 1)) if progressive else None,
        rotate=_pair(rotate, "--freeze-rotate", "K:PERIOD", (1, 1)) if rotate else None,
        update_every=tuple(_parse_periods(update_every)),
    )


def _parse_schedule(text: str | None) -> list[Change]:
    """Parse ``--freeze-schedule``, such as ``"0:emb;8000:-emb"``.

    Raises:
        InputError: an entry is not UPDATE:SPEC or UPDATE:-SPEC, or the updates do not ascend.
    """
    changes: list[Change] = []
    for entry in text.split(";") if text else ():
        number, colon, spec = (part.strip() for part in entry.partition(":"))
        update = whole_number(number)
        if not colon or update is None or not spec.lstrip("-"):
            raise InputError(f"--freeze-schedule {text!r}: {entry!r} is not UPDATE:COMPONENTS or UPDATE:-COMPONENTS")
        if changes and update < changes[-1].update:
            raise InputError(
                f"--freeze-schedule {text!r}: update {update} comes after update {changes[-1].update}; sort the entries by update"
            )
        freeze = not spec.startswith("-")
        freeze_spec.parse(spec.removeprefix("-"), "--freeze-schedule")
        changes.append(Change(update, spec.removeprefix("-"), freeze, "--freeze-schedule"))
    return changes


def _parse_periods(text: str | None) -> list[tuple[str, int]]:
    """Parse ``--freeze-update-every``: ``"ffn:4,emb:2"`` -> [("ffn", 4), ("emb", 2)]."""
    periods = []
    for item in text.split(",") if text else ():
        spec, _, number = item.rpartition(":")
        period = whole_number(number)
        if not spec or period is None or period < 2:
            raise InputError(f"--freeze-update-every {text!r}: {item!r} is not COMPONENT:N with N at least 2")
        freeze_spec.parse(spec, "--freeze-update-every")
        periods.append((spec, period))
    return periods


def _pair(text: str, flag: str, form: str, least: tuple[int, int]) -> tuple[int, int]:
    """Parse two whole numbers: ``"2:100"`` -> (2, 100)."""
    parts = [whole_number(part) for part in text.split(":")]
    numbers = [part for part in parts if part is not None]
    if len(parts) != 2 or len(numbers) != 2 or any(number < low for number, low in zip(numbers, least)):
        ranges = " and ".join(f"{name} of at least {low}" for name, low in zip(form.split(":"), least))
        raise InputError(f"{flag} {text!r}: must be {form} with whole numbers, {ranges}")
    return numbers[0], numbers[1]
