"""Complete a model's options, which come from a command line, hydra, a checkpoint or a dataclass."""

from argparse import Namespace
from dataclasses import fields

from omegaconf import DictConfig, OmegaConf

from ...errors import flag_of
from ..fairseq_rules import FOLLOWED_WIDTHS
from ..flags import SEED
from ..number_rules import refuse

# Option -> the option from which it gets its default.
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
    """Convert the options ``names`` from text to integers, in place. Delete invalid options, so that later checks use the defaults.

    fairseq's parser does not convert the text of a flag if the flag's default refers to another option.

    Raises:
        InputError: a value is not a whole number that fits into 64 bits.
    """
    found = []
    for name in names:
        value = getattr(args, name, None)
        if isinstance(value, str) and value not in _REFERENCES:
            try:
                value = int(value)
            except ValueError:
                found.append(f"{flag_of(name)} {value!r}: must be a whole number")
                delattr(args, name)
                continue
            setattr(args, name, value)
        if isinstance(value, int) and not -_MOST <= value <= _MOST:
            found.append(f"{flag_of(name)} {value}: must be a whole number that fits into 64 bits")
            delattr(args, name)
    refuse(found)


def _is_reference(value) -> bool:
    return isinstance(value, str) and value.startswith("${")
