"""Rules for numeric flags, and a check that reports every value that breaks its rule."""

import math
import operator
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from ..errors import InputError, flag_of

# Largest number of digits in a whole number. Numbers with more digits overflow in numpy and torch.
_DIGITS = 15
# Largest number of errors in one message. The message ends with the number of further errors.
_NAMED = 3

Bound = float | str | tuple[float | str, ...] | None


@dataclass(frozen=True)
class Rule:
    """The allowed values of one numeric flag. NaN and infinity are refused unless ``besides`` contains them.

    Attributes:
        place: group and field in fairseq's configuration, such as ``optimization.clip_norm``.
        above, at_least, below, at_most: bounds. A bound is a number, or the ``place`` of another flag. In the second case, the value of
            the other flag is the bound. In a tuple of bounds, only the largest bound applies.
        besides: allowed values outside the bounds, each with its meaning, such as ``{-1: "no limit"}``.
        only_with: the rule applies only if one of these names is chosen in the group, such as ``("inverse_sqrt",)``. If empty, the rule
            always applies.
        not_with: the rule does not apply if one of these names is chosen in the group.
        why: reason at the end of the message.
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
    """Make the same rule for several fields of a group."""
    return tuple(Rule(f"{group}.{name}", **bounds) for name in names.split())


class Options:
    """fairseq's options by group and name.

    Args:
        config: the namespace of a command line, a configuration with groups, or a mapping of groups.
    """

    def __init__(self, config: Any) -> None:
        self._config = config
        self._groups: dict[str, tuple[Any, dict[str, Any]]] = {}

    def group(self, group: str) -> tuple[Any, dict[str, Any]]:
        """Return (chosen name, values by name) of a group. The chosen name, such as "adam", may be None."""
        if group not in self._groups:
            self._groups[group] = self._read(group)
        return self._groups[group]

    def value(self, place: str) -> Any:
        group, _, name = place.partition(".")
        return self.group(group)[1].get(name)

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
        called: function that maps a field's name to its name in messages.

    Raises:
        InputError: one line with the first three errors, each with flag, value and the allowed range.
    """
    refuse(errors(config, rules, called))


def refuse(found: list[str]) -> None:
    """Raise one error with the first three messages and the number of further messages. Without messages, do nothing."""
    if found:
        more = f"; and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
        raise InputError("; ".join(found[:_NAMED]) + more, found)


@contextmanager
def collect(found: list[str]) -> Iterator[None]:
    """Add the messages of an ``InputError`` in the ``with`` block to ``found``, and continue after the block.

    Skip a message if an earlier check has already refused the same value of the same flag.
    """
    try:
        yield
    except InputError as error:
        refused = {_flag_and_value(message) for message in found}
        found += [message for message in error.messages if _flag_and_value(message) not in refused]


def _flag_and_value(message):
    return message.partition(": ")[0].replace("'", "").removesuffix(".0")


def errors(config: Any, rules: Iterable[Rule], called: Callable[[str], str] = flag_of) -> list[str]:
    """Return a message for every flag with a value that breaks its rule. A message names the flag, the value and the allowed range."""
    options = config if isinstance(config, Options) else Options(config)
    found: dict[str, str] = {}
    for rule in rules:
        chosen, values = options.group(rule.group)
        if rule.name not in values or chosen in rule.not_with or (rule.only_with and chosen not in rule.only_with):
            continue
        for number in _numbers(values[rule.name]):
            if not _is_allowed(number, rule, options):
                flag = called(rule.name)
                found.setdefault(flag, f"{flag} {shown(number)}: {allowed(rule, chosen, options, number, called)}")
    return list(found.values())


def _numbers(value: Any) -> list[float]:
    """Return the numbers in a value, which may be one number or several."""
    several = value if isinstance(value, Iterable) and not isinstance(value, (str, Mapping)) else [value]
    return [one for one in several if isinstance(one, (int, float)) and not isinstance(one, bool)]


def _is_allowed(number: float, rule: Rule, options: Options) -> bool:
    if number in rule.besides:
        return True
    if not math.isfinite(number) or _has_too_many_digits(number, rule):
        return False
    comparisons = (
        (operator.gt, rule.above),
        (operator.ge, rule.at_least),
        (operator.lt, rule.below),
        (operator.le, rule.at_most),
    )
    return all(holds(number, found[0]) for holds, bound in comparisons if (found := _limit(bound, options)))


def _has_too_many_digits(number, rule):
    return isinstance(number, int) and not isinstance(rule.at_most, (int, float)) and abs(number) >= 10**_DIGITS


def _limit(bound: Bound, options: Options) -> tuple[float, str] | None:
    """Return a bound as (number, flag). The flag is "" if the bound does not refer to a flag. Return None if there is no bound.

    If the flag has several numbers, the largest number is the bound.
    """
    if isinstance(bound, tuple):
        return max(filter(None, (_limit(one, options) for one in bound)), key=operator.itemgetter(0), default=None)
    if not isinstance(bound, str):
        return None if bound is None else (bound, "")
    numbers = _numbers(options.value(bound))
    return (max(numbers), bound.partition(".")[2]) if numbers else None


def shown(number: float) -> str:
    """Format a number for a message: ``1.0`` -> ``1``."""
    return repr(number).removesuffix(".0")


def allowed(rule: Rule, chosen: Any, options: Options, number: float, called: Callable[[str], str] = flag_of) -> str:
    """Describe the allowed values of a flag, for an error message."""

    def text(bound):
        found = _limit(bound, options)
        if not found:
            return None
        return f"{called(found[1])}, {shown(found[0])}" if found[1] else shown(found[0])

    if _has_too_many_digits(number, rule):
        return f"must have at most {_DIGITS} digits"
    limits = _in_words(*map(text, (rule.above, rule.at_least, rule.below, rule.at_most)))
    meanings: dict[str, list[str]] = {}
    for value, meaning in rule.besides.items():
        meanings.setdefault(meaning, []).append(shown(value))
    others = "".join(f", or {' or '.join(values)} for {meaning}" for meaning, values in meanings.items())
    where = f" with {flag_of(rule.group)} {chosen}" if rule.only_with else ""
    return f"must be {limits}{others}{where}{f': {rule.why}' if rule.why else ''}"


def _in_words(above: str | None, at_least: str | None, below: str | None, at_most: str | None) -> str:
    """Describe bounds in words: ``from 0 to below 1``, ``at least 1``, ``greater than 0 and below 1``."""
    if at_least is not None and (below, at_most) != (None, None):
        return f"from {at_least} to {at_most if at_most is not None else f'below {below}'}"
    bounds = (("greater than", above), ("at least", at_least), ("below", below), ("at most", at_most))
    return " and ".join(f"{word} {bound}" for word, bound in bounds if bound is not None) or "a finite number"
