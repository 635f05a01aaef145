"""Complete a model's options, which come from a command line, hydra, a checkpoint or a dataclass."""

from argparse import Namespace
from dataclasses import fields

from omegaconf import DictConfig, OmegaConf

from ...errors import InputError, flag_of
from ..flags import SEED

# Option -> the option from which it gets its default. The order matters: decoder_input_dim needs the value of decoder_embed_dim.
FOLLOWED_WIDTHS = {
    "decoder_embed_dim": "encoder_embed_dim",
    "decoder_ffn_embed_dim": "encoder_ffn_embed_dim",
    "decoder_input_dim": "decoder_embed_dim",
    "decoder_output_dim": "decoder_embed_dim",
}
_FOLLOWED = {**FOLLOWED_WIDTHS, "reservoir_seed": "seed", "mask_seed": "seed"}
# fairseq's defaults of options outside the model's group.
_OF_OTHER_GROUPS = {"seed": 1, "add_bos_token": False, "tokens_per_sample": 1024, "tpu": False}
_REFERENCES = (SEED, *(f"${{model.{other}}}" for other in FOLLOWED_WIDTHS.values()))
_NUMBERS = ("encoder_layers", "decoder_layers", *_FOLLOWED)
_MOST = 2**63 - 1


def fill_defaults(args, dataclass) -> None:
    """Set missing options to the dataclass's defaults. Skip options with a default that refers to another option."""
    for option in fields(dataclass):
        if not hasattr(args, option.name) and not _is_reference(option.default):
            setattr(args, option.name, option.default)


def follow_seed(args, name: str) -> None:
    """If the seed option ``name`` is missing, set it to ``--seed``. A namespace cannot resolve the option's default, ``${common.seed}``."""
    if not hasattr(args, name):
        setattr(args, name, getattr(args, "seed", _OF_OTHER_GROUPS["seed"]))


def fill_in(args, values: dict) -> None:
    """Set options to the ``values`` of a preset if the user has not set them."""
    for name, value in values.items():
        if getattr(args, name, None) is None:
            setattr(args, name, value)


def as_namespace(cfg) -> Namespace:
    """Copy a model's options to a plain namespace. Replace references to other options by their values."""
    if isinstance(cfg, DictConfig):
        return Namespace(**OmegaConf.to_container(cfg, resolve=True, enum_to_str=True))
    values = dict(vars(cfg))
    for name in (*_FOLLOWED, *values):
        if _is_reference(values.get(name)):
            other = values[name][2:-1].rpartition(".")[2]
            known = _OF_OTHER_GROUPS | {key: value for key, value in values.items() if key != name}
            values[name] = known.get(other)
    return Namespace(**values)


def read_numbers(args, names=_NUMBERS) -> None:
    """Convert the options ``names`` from text to integers, in place.

    fairseq's parser does not convert the text of a flag if the flag's default refers to another option.

    Raises:
        InputError: a value is not a whole number that fits into 64 bits.
    """
    for name in names:
        value = getattr(args, name, None)
        if isinstance(value, str) and value not in _REFERENCES:
            try:
                value = int(value)
            except ValueError:
                raise InputError(f"{flag_of(name)} {value!r}: must be a whole number") from None
            setattr(args, name, value)
        if isinstance(value, int) and not -_MOST <= value <= _MOST:
            raise InputError(f"{flag_of(name)} {value}: must be a whole number that fits into 64 bits")


def _is_reference(value) -> bool:
    return isinstance(value, str) and value.startswith("${")
