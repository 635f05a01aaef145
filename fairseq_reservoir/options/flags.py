"""Define a flag as a field of a dataclass: its default, its help, and the rules that its value must keep."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Optional

from ..errors import InputError, flag_of, whole_number
from . import fairseq_rules
from .fairseq_flags import ModelFlags
from .number_rules import Rule, errors as number_errors, refuse, shown
from .reading import read

# The default of a seed that follows --seed. hydra resolves it; a command line leaves it to ``for_fairseq.namespaces``.
SEED = "${common.seed}"
_RULES = "rules"


@dataclass
class Flags:
    """Base of the dataclasses of flags, for the field that begins all of fairseq's. It holds the choice of a group, such as ``adam``."""

    _name: Optional[str] = None


@dataclass(frozen=True)
class FieldRules:
    """The rules of one flag, apart from its type.

    Attributes:
        bounds: ``above``, ``at_least``, ``below`` and ``at_most`` of a number, as in ``number_rules.Rule``.
        choices: the texts that are allowed.
        needs: options of the same dataclass. One of them must be given, because the flag has no effect without.
        excludes: another option of the dataclass that may not be given too -> the reason, which ends the message.
    """

    bounds: Mapping[str, Any]
    choices: tuple[str, ...]
    needs: tuple[str, ...]
    excludes: Mapping[str, str]


def option(
    default: Any,
    help_text: str,
    metavar: str = "",
    *,
    choices: tuple[str, ...] = (),
    needs: tuple[str, ...] = (),
    excludes: Mapping[str, str] | None = None,
    **bounds: Any,
) -> Any:
    """A field of a dataclass that is a flag; see ``FieldRules``. ``check`` applies its rules."""
    rules = FieldRules(bounds, choices, needs, excludes or {})
    return field(default=default, metadata={"help": help_text, "metavar": metavar, _RULES: rules})


def choices_of(options: type) -> dict[str, tuple[str, ...]]:
    """The texts that each option of a dataclass may have, by name, for the options with a fixed choice."""
    return {one.name: one.metadata[_RULES].choices for one in fields(options) if _choices(one)}


def check(config: Any, options: type) -> None:
    """Refuse values that break the rules of their fields.

    Args:
        config: a namespace or configuration with a value for every field.
        options: the dataclass with the fields.

    Raises:
        InputError: one line with the first three errors and the number of the others.
    """
    refuse(errors(config, options))


def errors(config: Any, options: type) -> list[str]:
    """Every value that breaks a rule of its field, each with its flag and the values that are allowed."""
    values = {one.name: getattr(config, one.name) for one in fields(options) if _RULES in one.metadata}
    return [
        error
        for one in fields(options)
        if one.name in values
        for error in _errors_of(one, values, one.metadata[_RULES])
    ]


def _choices(one):
    return one.metadata[_RULES].choices if _RULES in one.metadata else ()


def _errors_of(one, values, rules):
    """The errors of one field. A value that is refused already is not compared with other options."""
    value = values[one.name]
    if rules.choices and value != one.default and value not in rules.choices:
        return [f"{flag_of(one.name)} {value!r}: choose from {', '.join(rules.choices)}"]
    if rules.bounds and (found := number_errors({"own": {one.name: value}}, [Rule(f"own.{one.name}", **rules.bounds)])):
        return found
    if value == one.default:
        return []
    if rules.needs and not any(values[other] for other in rules.needs):
        return [f"{given(one.name, value)}: has no effect without {' or '.join(map(flag_of, rules.needs))}"]
    return [
        f"{given(one.name, value)}: not with {given(other, values[other])}, {reason}"
        for other, reason in rules.excludes.items()
        if value and values[other]
    ]


def given(name: str, value: Any) -> str:
    """A flag as the user gave it: ``--mask-random``, ``--mask-pin 0.1``."""
    if value is True:
        return flag_of(name)
    return f"{flag_of(name)} {shown(value) if isinstance(value, float) else value}"


def check_texts(options, dataclass) -> None:
    """Refuse empty texts, which would count as not given, and texts that refer to other options.

    Raises:
        InputError: one line with the flag.
    """
    values = vars(read(dataclass, options))
    for one in fields(dataclass):
        value = values.get(one.name)
        if one.name.startswith("_") or not isinstance(value, str) or value == one.default:
            continue
        if not value.strip():
            raise InputError(f"{flag_of(one.name)} {value!r}: is empty; give it a value or leave it out")
        if "${" in value:
            raise InputError(
                f"{flag_of(one.name)} {value!r}: flags have no ${{...}}, which belongs into YAML; give the value itself"
            )


def check_ranges(options) -> None:
    """Refuse sizes, shares and depths of fairseq's model flags that no model can have.

    fairseq's BASE layers are refused too, because a plan does not have them and each process has different ones.

    Raises:
        InputError: one line with the flag.
    """
    fairseq_rules.check_model(options)
    flags = read(ModelFlags, options)
    for flag, cutoffs in (
        ("--adaptive-softmax-cutoff", flags.adaptive_softmax_cutoff),
        ("--adaptive-input-cutoff", flags.adaptive_input_cutoff),
    ):
        if isinstance(cutoffs, str):
            _check_cutoffs(flag, cutoffs)
    if flags.base_layers:
        raise InputError(f"--base-layers {flags.base_layers}: not in models with frozen or masked parts; leave it out")
    _check_tied_output(flags)


def _check_cutoffs(flag, text):
    cutoffs = [whole_number(part.strip()) or 0 for part in text.split(",")]
    if any(larger <= smaller for smaller, larger in zip([0, *cutoffs], cutoffs)):
        raise InputError(f"{flag} {text}: must be whole numbers that ascend, such as 10000,50000")


def _check_tied_output(flags):
    tied = flags.share_decoder_input_output_embed or flags.share_all_embeddings
    table, output = flags.decoder_embed_dim, flags.decoder_output_dim
    if flags.encoder_embed_dim is None or flags.adaptive_softmax_cutoff:  # a language model has a matrix between them
        return
    if tied and isinstance(output, int) and isinstance(table, int) and output != table:
        raise InputError(f"--decoder-output-dim {output}: an output tied to the embeddings has their width, {table}")
