"""Caches for fairseq's conversion of flags into a configuration, which takes most of the time of a training of a few updates.

fairseq writes every flag as an override for hydra, which parses some 340 overrides for each run and composes a configuration from its
registry. fairseq then copies the composed configuration, and later merges each part of it with the defaults of a dataclass. Here,
overrides are parsed once. Configurations are composed from the registered dataclasses, once for the same task, criterion, optimizer
and model: the next run sets the flags that differ. Conversions, merged parts and copied parts are stored as bytes, by their input.
hydra itself composes configurations that have other files or choices, and reports all errors.
"""

import copy
import io
import pickle
import warnings
from contextlib import nullcontext
from pathlib import Path

import fairseq
import fairseq.dataclass.utils
from hydra import initialize_config_dir
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

FAIRSEQS = str(Path(fairseq.__file__).parent / "config")
parse_anew = OverridesParser.parse_rule
initialize_anew = fairseq.dataclass.utils.initialize
compose_anew = fairseq.dataclass.utils.compose
structured_anew = OmegaConf.structured
_parsed, _composed, _structured, _merged, _created, _classes = {}, {}, {}, {}, {}, {}


def parse_once(self, text, rule):
    """Parse each text once. Each run gets a copy, because hydra changes its input."""
    if (text, rule) not in _parsed:
        _parsed[text, rule] = parse_anew(self, text, rule)
    return copy.copy(_parsed[text, rule])


def compose_once(config_name, overrides, **how):
    """Cache composed configurations by choices such as ``task=translation``. Same choices have the same names ``task.data=...``."""
    values = dict(text.split("=", 1) for text in overrides)
    choices = {name: value for name, value in values.items() if "." not in name}
    key = repr((config_name, how, choices, list(values)))
    config, known = _composed.pop(key, (None, {}))  # an override that cannot be set is not cached
    try:
        if config is None:
            config = _compose_from_registry(choices)
        others = [
            f"{name}={value}" for name, value in values.items() if name not in choices and known.get(name) != value
        ]
        ConfigLoaderImpl._apply_overrides_to_config(OverridesParser.create().parse_overrides(others), config)
    except Exception:
        config = _compose_anew(config_name, overrides, **how)
    _composed[key] = config, values
    return config


def _compose_from_registry(choices):
    """Compose fairseq's ``config.yaml``, and set the groups of ``choices``, as hydra does.

    Raises:
        KeyError: if a choice is not a registered dataclass.
    """
    if None not in _composed:
        _composed[None] = _bytes(_compose_anew("config", []))
    config, registered = pickle.loads(_composed[None]), ConfigStore.instance().repo
    for group, name in choices.items():
        config[group] = copy.deepcopy(registered[group][f"{name}.yaml"].node)
    OmegaConf.set_struct(config, True)
    return config


def _compose_anew(config_name, overrides, **how):
    # where fairseq's ``convert_namespace_to_omegaconf`` looks up ``initialize``
    with warnings.catch_warnings():
        # fairseq's ``initialize`` prints a warning about hydra's version once per process.
        warnings.simplefilter("ignore")
        with initialize_config_dir(FAIRSEQS):
            return compose_anew(config_name, overrides, **how)


def structured_once(obj, parent=None, flags=None):
    """Cache the conversion of a dataclass. Objects are not cached, because their values may change."""
    if not isinstance(obj, type) or parent is not None:
        return structured_anew(obj, parent, flags)
    return _stored(_structured, (obj, repr(flags)), lambda: structured_anew(obj, flags=flags))


class RememberingConf(OmegaConf):
    """``OmegaConf`` for the module of fairseq that converts flags."""

    @staticmethod
    def merge(defaults, config):
        """Cache the merge of a dataclass, or an object of one, with a configuration."""
        parent, config.__dict__["_parent"] = config.__dict__["_parent"], None
        try:
            key = _bytes((defaults, config))
        finally:
            config.__dict__["_parent"] = parent
        return _stored(_merged, key, lambda: OmegaConf.merge(defaults, config))

    @staticmethod
    def create(parts):
        """Create a configuration from a dictionary. Inner dictionaries are cached."""
        config = OmegaConf.create(dict.fromkeys(parts))
        for name, part in parts.items():
            if isinstance(part, dict):
                node = _stored(_created, repr(part), lambda part=part: OmegaConf.create(part))
                node._set_parent(config)
                node._set_key(name)
                config._content[name] = node
            else:
                config[name] = part
        return config


class _Pickler(pickle.Pickler):
    """Stores classes as numbers for this process, because fairseq and the plugin create some in functions."""

    def reducer_override(self, thing):
        if isinstance(thing, type):
            _classes[id(thing)] = thing
            return _class, (id(thing),)
        return NotImplemented


def _class(number):
    return _classes[number]


def _bytes(thing):
    _Pickler(stream := io.BytesIO()).dump(thing)
    return stream.getvalue()


def _stored(cache, key, make):
    """Return a new copy of ``make()``, which is called once per key. A copy from bytes takes a third of the time of ``deepcopy``."""
    if key not in cache:
        cache[key] = _bytes(make())
    return pickle.loads(cache[key])


def remember():
    """Enable the caches in this process, once."""
    OverridesParser.parse_rule = parse_once
    ConfigStore.__deepcopy__ = lambda store, memo: store
    fairseq.dataclass.utils.initialize = lambda config_path: nullcontext()
    fairseq.dataclass.utils.compose = compose_once
    fairseq.dataclass.utils.OmegaConf = RememberingConf
    OmegaConf.structured = staticmethod(structured_once)


def forget():
    """Disable the caches."""
    OverridesParser.parse_rule = parse_anew
    fairseq.dataclass.utils.initialize = initialize_anew
    fairseq.dataclass.utils.compose = compose_anew
    fairseq.dataclass.utils.OmegaConf = OmegaConf
    OmegaConf.structured = staticmethod(structured_anew)
    if "__deepcopy__" in vars(ConfigStore):
        del ConfigStore.__deepcopy__
