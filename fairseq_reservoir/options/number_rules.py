"""Rules for numeric flags: one ``Rule`` for each flag, and a check that returns an error for every value that breaks its rule."""

import math
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import InputError, flag_of

# Most digits of a whole number. Numbers with more digits overflow in numpy and torch.
_DIGITS = 15
# Most errors in one message. The message ends with the number of further errors.
_NAMED = 3


Bound = float | str | tuple[float | str, ...] | None


@dataclass(frozen=True)
class Rule:
    """The allowed values of one numeric flag. NaN and infinity are refused unless ``besides`` contains them.

    Attributes:
        place: group and field in fairseq's configuration, such as ``optimization.clip_norm``.
        above, at_least, below, at_most: bounds. A text is the place of another flag, and its value is the bound. The largest of
            several bounds counts.
        besides: other values that are allowed, with their meaning, such as ``{-1: "no limit"}``.
        only_with: choices of the group to which the rule applies, such as ``("inverse_sqrt",)``; empty for all choices.
        not_with: choices of the group to which the rule does not apply.
        why: reason, which ends the message.
    """

    place: str
    above: Bound = None
    at_least: Bound = None
    below: Bound = None
    at_most: Bound = None
    besides: Mapping[Any, str] = field(default_factory=dict)
    only_with: tuple[str, ...] = ()
    not_with: tuple[str, ...] = ()
    why: str = ""

    @property
    def group(self) -> str:
        return self.place.partition(".")[0]

    @property
    def name(self) -> str:
        return self.place.partition(".")[2]


def rows(group: str, names: str, **bounds: Any) -> tuple[Rule, ...]:
    """The same rule for several fields of a group."""
    return tuple(Rule(f"{group}.{name}", **bounds) for name in names.split())


class Options:
    """fairseq's options by group and name.

    Args:
        config: the namespace of a command line, or a configuration with groups, or a mapping of groups.
    """

    def __init__(self, config: Any) -> None:
        self._config = config
        self._groups: dict[str, tuple[Any, dict[str, Any]]] = {}

    def of(self, group: str) -> tuple[Any, dict[str, Any]]:
        """The chosen name of a group, such as ``adam``, or None; and the group's values by name."""
        if group not in self._groups:
            self._groups[group] = self._read(group)
        return self._groups[group]

    def value(self, place: str) -> Any:
        group, _, name = place.partition(".")
        return self.of(group)[1].get(name)

    def _read(self, group):
        config = self._config
        if isinstance(config, Namespace):
            return getattr(config, "arch" if group == "model" else group, None), vars(config)
        node = config.get(group) if hasattr(config, "get") else getattr(config, group, None)
        if isinstance(node, Namespace):
            return getattr(node, "_name", None), vars(node)
        if not hasattr(node, "items"):
            return None, {}
        values = dict(_flat(node))
        return values.get("_name"), values


def _flat(node: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield names and values of a group. A nested group's name becomes a prefix, as on the command line: ``encoder_layers``."""
    for name in node:
        if hasattr(node, "_get_node") and node._get_node(name)._is_missing():
            continue
        value = node[name]
        if hasattr(value, "items"):
            yield from _flat(value, f"{prefix}{name}_")
        else:
            yield f"{prefix}{name}", value


def check(config: Any, rules: Iterable[Rule], called: Callable[[str], str] = flag_of) -> None:
    """Refuse numbers that break a rule.

    Args:
        config: see ``Options``.
        called: returns the name of a field for messages.

    Raises:
        InputError: one line with the first three errors, each with flag, value and the allowed range.
    """
    refuse(errors(config, rules, called))


def refuse(found: list[str]) -> None:
    """Raise one error with the first three messages in ``found`` and the number of further ones. Do nothing if there are none."""
    if found:
        more = f"; and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
        raise InputError("; ".join(found[:_NAMED]) + more)


def errors(config: Any, rules: Iterable[Rule], called: Callable[[str], str] = flag_of) -> list[str]:
    """Return a message for every value that breaks a rule, with flag and allowed range. There is at most one for each flag."""
    options = config if isinstance(config, Options) else Options(config)
    found: dict[str, str] = {}
    for rule in rules:
        chosen, values = options.of(rule.group)
        if rule.name not in values or chosen in rule.not_with or (rule.only_with and chosen not in rule.only_with):
            continue
        value = values[rule.name]
        for number in value if isinstance(value, Iterable) and not isinstance(value, (str, Mapping)) else [value]:
            if _is_number(number) and not _keeps(number, rule, options):
                flag = called(rule.name)
                found.setdefault(flag, f"{flag} {shown(number)}: {allowed(rule, chosen, options, number, called)}")
    return list(found.values())


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _keeps(number: float, rule: Rule, options: Options) -> bool:
    if number in rule.besides:
        return True
    if not math.isfinite(number) or _has_too_many_digits(number, rule):
        return False
    above, at_least, below, at_most = (
        _bound(bound, options) for bound in (rule.above, rule.at_least, rule.below, rule.at_most)
    )
    return (
        (above is None or number > above)
        and (at_least is None or number >= at_least)
        and (below is None or number < below)
        and (at_most is None or number <= at_most)
    )


def _has_too_many_digits(number, rule):
    return isinstance(number, int) and not isinstance(rule.at_most, (int, float)) and abs(number) >= 10**_DIGITS


def _bound(bound: Bound, options: Options) -> float | None:
    """Return a bound as a number. If the bound is a flag with several numbers, return the largest; if it has none, None."""
    bound = _largest(bound, options)
    if not isinstance(bound, str):
        return bound
    value = options.value(bound)
    numbers = value if isinstance(value, Iterable) and not isinstance(value, (str, Mapping)) else [value]
    return max(filter(_is_number, numbers), default=None)


def _largest(bound: Bound, options: Options) -> float | str | None:
    """Return the largest of several bounds."""
    if not isinstance(bound, tuple):
        return bound
    values = {one: value for one in bound if (value := _bound(one, options)) is not None}
    return max(values, key=values.__getitem__, default=None)


def shown(number: float) -> str:
    """``1.0`` -> ``1``"""
    return repr(number).removesuffix(".0")


def allowed(rule: Rule, chosen: Any, options: Options, number: float, called: Callable[[str], str] = flag_of) -> str:
    """The part of a message that states the allowed values of a flag."""

    def text(bound):
        bound = _largest(bound, options)
        value = _bound(bound, options)
        if value is None:
            return None
        return f"{called(bound.partition('.')[2])}, {shown(value)}" if isinstance(bound, str) else shown(value)

    if _is_number(number) and math.isfinite(number) and _has_too_many_digits(number, rule):
        return f"must have at most {_DIGITS} digits"
    limits = _in_words(*map(text, (rule.above, rule.at_least, rule.below, rule.at_most)))
    others = "".join(f", or {shown(value)} for {meaning}" for value, meaning in rule.besides.items())
    where = f" with {flag_of(rule.group)} {chosen}" if rule.only_with else ""
    return f"must be {limits}{others}{where}{f': {rule.why}' if rule.why else ''}"


def _in_words(above: str | None, at_least: str | None, below: str | None, at_most: str | None) -> str:
    """``from 0 to below 1``, ``at least 1``, ``greater than 0 and below 1``"""
    if at_least is not None and (below, at_most) != (None, None):
        return f"from {at_least} to {at_most if at_most is not None else f'below {below}'}"
    bounds = (("greater than", above), ("at least", at_least), ("below", below), ("at most", at_most))
    return " and ".join(f"{word} {bound}" for word, bound in bounds if bound is not None) or "a finite number"
