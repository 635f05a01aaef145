"""One flag: a field of a dataclass, its name on the command line, and what the values of no flag may be."""

from dataclasses import field, fields

from ..errors import InputError, flag_of, whole_number
from . import fairseq_rules


def option(default, help_text, metavar=""):
    return field(default=default, metadata={"help": help_text, "metavar": metavar})


def check_texts(options, dataclass) -> None:
    """Refuses flags of a dataclass that are given an empty text, which would mean not given, or one that refers to other options.

    Raises:
        InputError: one line with the flag.
    """
    for option in fields(dataclass):
        value = getattr(options, option.name, None)
        if option.name.startswith("_") or not isinstance(value, str) or value == option.default:
            continue
        if not value.strip():
            raise InputError(f"{flag_of(option.name)} {value!r}: is empty; give it a value or leave it out")
        if "${" in value:
            raise InputError(
                f"{flag_of(option.name)} {value!r}: flags have no ${{...}}, which belongs into YAML; give the value itself"
            )


def _check_cutoffs(flag, text):
    cutoffs = [whole_number(part.strip()) or 0 for part in text.split(",")]
    if any(larger <= smaller for smaller, larger in zip([0, *cutoffs], cutoffs)):
        raise InputError(f"{flag} {text}: must be whole numbers that ascend, such as 10000,50000")


def check_ranges(options) -> None:
    """Refuses shares of dropout and of dropped layers that are none, and widths, heads and depths that nobody can build.

    fairseq's BASE layers are refused too: they are no layers of a plan, and each process has others.

    Raises:
        InputError: one line with the flag.
    """
    fairseq_rules.check_model(options)
    for name in ("adaptive_softmax_cutoff", "adaptive_input_cutoff"):
        value = getattr(options, name, None)
        if isinstance(value, str):
            _check_cutoffs(flag_of(name), value)
    if getattr(options, "base_layers", 0):
        raise InputError(
            f"--base-layers {options.base_layers}: not in models with frozen or masked parts; leave it out"
        )
    _check_tied_output(options)


def _check_tied_output(options):
    tied = any(getattr(options, name, False) for name in ("share_decoder_input_output_embed", "share_all_embeddings"))
    table, output = (getattr(options, f"decoder_{name}_dim", None) for name in ("embed", "output"))
    translates, adaptive = hasattr(options, "encoder_embed_dim"), getattr(options, "adaptive_softmax_cutoff", None)
    if tied and translates and not adaptive and isinstance(output, int) and isinstance(table, int) and output != table:
        raise InputError(f"--decoder-output-dim {output}: an output tied to the embeddings has their width, {table}")
