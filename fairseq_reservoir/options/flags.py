"""Define a flag as a field of a dataclass, with its default, its help text and the rules for its value."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Optional

from ..errors import InputError, flag_of, whole_number
from . import fairseq_rules
from .fairseq_flags import ModelFlags
from .number_rules import Rule, collect, errors as number_errors, refuse, shown
from .reading import read

# Default of a seed option: a reference to --seed. It is resolved by hydra or, on a command line, by ``for_fairseq.namespaces``.
SEED = "${common.seed}"
_RULES = "rules"


@dataclass
class Flags:
    """Base class of dataclasses of flags. fairseq stores the chosen model or optimizer, such as "adam", in ``_name``."""

    _name: Optional[str] = None


@dataclass(frozen=True)
class FieldRules:
    """Rules for the value of one flag, in addition to its type.

    Attributes:
        bounds: ``above``, ``at_least``, ``below`` and ``at_most`` of a number, as in ``number_rules.Rule``.
        choices: allowed texts; empty if any text is allowed.
        needs: options of the same dataclass. At least one of them must be given, because the flag alone has no effect.
        excludes: option -> reason. These options of the same dataclass cannot be combined with the flag. The message ends with the reason.
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
    """Return a dataclass field that defines a flag. ``FieldRules`` explains the rules, ``check`` applies them."""
    rules = FieldRules(bounds, choices, needs, excludes or {})
    return field(default=default, metadata={"help": help_text, "metavar": metavar, _RULES: rules})


def check(config: Any, options: type) -> None:
    """Refuse values that break the rules of their fields.

    Args:
        config: a namespace or configuration with a value for every field.
        options: the dataclass with the fields.

    Raises:
        InputError: one line with the first three errors and the number of further errors.
    """
    refuse(errors(config, options))


def errors(config: Any, options: type) -> list[str]:
    """Return a message for every value that breaks a rule of its field. A message names the flag, the value and the allowed values."""
    values = {one.name: getattr(config, one.name) for one in fields(options) if _RULES in one.metadata}
    return [
        error
        for one in fields(options)
        if one.name in values
        for error in _errors_of(one, values, one.metadata[_RULES])
    ]


def _errors_of(one, values, rules):
    """Return the errors of one field. Combinations with other options are checked only if the value itself is allowed."""
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
        f"{given(one.name, value)}: cannot be combined with {given(other, values[other])}, {reason}"
        for other, reason in rules.excludes.items()
        if value and values[other]
    ]


def given(name: str, value: Any) -> str:
    """Format a flag and its value as on a command line: ``--mask-random``, ``--mask-pin 0.1``."""
    if value is True:
        return flag_of(name)
    return f"{flag_of(name)} {shown(value) if isinstance(value, float) else value}"


def check_texts(options, dataclass) -> None:
    """Refuse empty texts and texts with a reference ``${...}`` to another option. An empty text would count as a missing flag."""
    values, found = vars(read(dataclass, options)), []
    for one in fields(dataclass):
        value = values.get(one.name)
        if one.name.startswith("_") or not isinstance(value, str) or value == one.default:
            continue
        if not value.strip():
            found.append(f"{flag_of(one.name)} {value!r}: is empty; give it a value or remove the flag")
        elif "${" in value:
            found.append(
                f"{flag_of(one.name)} {value!r}: a reference ${{...}} is only allowed in YAML; give the value itself"
            )
    refuse(found)


def check_ranges(options) -> None:
    """Refuse impossible values of fairseq's model flags, such as a width of 0.

    fairseq's BASE layers are refused too, because layer plans do not support them and each rank has different BASE layers.
    """
    found: list[str] = []
    with collect(found):
        fairseq_rules.check_model(options)
    flags = read(ModelFlags, options)
    for flag, cutoffs in (
        ("--adaptive-softmax-cutoff", flags.adaptive_softmax_cutoff),
        ("--adaptive-input-cutoff", flags.adaptive_input_cutoff),
    ):
        with collect(found):
            # fairseq converts the flag of some models while it parses the command line.
            if isinstance(cutoffs, (list, tuple)):
                cutoffs = ",".join(map(str, cutoffs))
            if isinstance(cutoffs, str):
                _check_cutoffs(flag, cutoffs)
    with collect(found):
        if flags.base_layers:
            raise InputError(
                f"--base-layers {flags.base_layers}: not supported in the models of this package; remove the flag"
            )
    with collect(found):
        _check_tied_output(flags)
    refuse(found)


def _check_cutoffs(flag, text):
    cutoffs = [whole_number(part.strip()) or 0 for part in text.split(",")]
    if any(larger <= smaller for smaller, larger in zip([0, *cutoffs], cutoffs)):
        raise InputError(f"{flag} {text}: must be ascending whole numbers, such as 10000,50000")


def _check_tied_output(flags):
    tied = flags.share_decoder_input_output_embed or flags.share_all_embeddings
    table, output = flags.decoder_embed_dim, flags.decoder_output_dim
    # In a language model, a trained matrix connects the two widths.
    if flags.encoder_embed_dim is None or flags.adaptive_softmax_cutoff:
        return
    if tied and isinstance(output, int) and isinstance(table, int) and output != table:
        raise InputError(
            f"--decoder-output-dim {output}: must equal --decoder-embed-dim ({table}), because the output projection is tied to the "
            "embeddings"
        )
