"""Caches for fairseq's conversion of flags into a configuration, which takes most of the time of a training of a few updates.

fairseq writes every flag as an override for hydra. hydra parses some 340 overrides for each run, copies all registered configurations
before it reads one of them, and reads and merges the same twenty each time. All of this is the same in runs with the same task,
criterion and optimizer. Here, texts are parsed once, the registry is not copied as a whole (hydra copies what it returns), and merged
configurations are cached. Configurations from files other than fairseq's own are read again.

fairseq copies the composed configuration at once, so it is cached too. The next run with the same task, criterion, optimizer and model
sets the flags that differ. omegaconf's conversion of a dataclass is also cached.
"""

import copy
import warnings
from contextlib import nullcontext
from pathlib import Path

import fairseq
import fairseq.dataclass.utils
from hydra import initialize_config_dir
from hydra._internal import defaults_list
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

FAIRSEQS = str(Path(fairseq.__file__).parent / "config")
parse_anew = OverridesParser.parse_rule
list_anew = defaults_list._create_defaults_list
join_anew = ConfigLoaderImpl._compose_config_from_defaults_list
initialize_anew = fairseq.dataclass.utils.initialize
compose_anew = fairseq.dataclass.utils.compose
structured_anew = OmegaConf.structured
_parsed, _listed, _joined, _composed, _structured = {}, {}, {}, {}, {}


def parse_once(self, text, rule):
    """Parse each text once. Each run gets a copy, because hydra changes its input."""
    if (text, rule) not in _parsed:
        _parsed[text, rule] = parse_anew(self, text, rule)
    return copy.copy(_parsed[text, rule])


def list_once(repo, config_name, overrides, **how):
    """Cache the list of configurations to merge, by the choices among them and the search path."""
    paths = {source.path for source in repo.get_sources() if source.scheme() == "file"}
    if paths - {FAIRSEQS}:
        return list_anew(repo, config_name, overrides, **how)
    chosen = (overrides.override_choices, overrides.append_group_defaults, overrides.deletions)
    key = repr((config_name, chosen, how))
    if key not in _listed:
        listed = list_anew(repo, config_name, overrides, **how)
        _listed[key] = listed, overrides.known_choices, overrides.known_choices_per_group
    listed, overrides.known_choices, overrides.known_choices_per_group = _listed[key]
    for used in (*overrides.override_metadata.values(), *overrides.deletions.values()):
        used.used = True
    return listed


def join_once(self, defaults, repo):
    """Cache merged configurations by the identity of the ``defaults`` from ``list_once``."""
    if not any(listed[0] is defaults for listed, *_ in _listed.values()):
        return join_anew(self, defaults, repo)
    if id(defaults) not in _joined:
        _joined[id(defaults)] = join_anew(self, defaults, repo)
    return copy.deepcopy(_joined[id(defaults)])


def compose_once(config_name, overrides, **how):
    """Cache composed configurations by choices such as ``task=translation``. Same choices have the same names ``task.data=...``."""
    values = dict(text.split("=", 1) for text in overrides)
    choices = {name: value for name, value in values.items() if "." not in name}
    key = repr((config_name, how, choices, list(values)))
    if key in _composed:
        config, known = _composed.pop(key)  # an override that cannot be set is not cached
        others = [f"{name}={value}" for name, value in values.items() if known[name] != value]
        parsed = OverridesParser.create().parse_overrides(others)
        ConfigLoaderImpl._apply_overrides_to_config(parsed, config)
    else:
        # where fairseq's ``convert_namespace_to_omegaconf`` looks up ``initialize``
        with warnings.catch_warnings():
            # fairseq's ``initialize`` prints a warning about hydra's version once per process.
            warnings.simplefilter("ignore")
            with initialize_config_dir(FAIRSEQS):
                config = compose_anew(config_name, overrides, **how)
    _composed[key] = config, values
    return config


def structured_once(obj, parent=None, flags=None):
    """Cache the conversion of a dataclass. Objects are not cached, because their values may change."""
    if not isinstance(obj, type) or parent is not None:
        return structured_anew(obj, parent, flags)
    key = obj, repr(flags)
    if key not in _structured:
        _structured[key] = structured_anew(obj, flags=flags)
    return copy.deepcopy(_structured[key])


def remember():
    """Enable the caches in this process, once."""
    OverridesParser.parse_rule = parse_once
    ConfigStore.__deepcopy__ = lambda store, memo: store
    defaults_list._create_defaults_list = list_once
    ConfigLoaderImpl._compose_config_from_defaults_list = join_once
    fairseq.dataclass.utils.initialize = lambda config_path: nullcontext()
    fairseq.dataclass.utils.compose = compose_once
    OmegaConf.structured = staticmethod(structured_once)


def forget():
    """Disable the caches."""
    OverridesParser.parse_rule = parse_anew
    defaults_list._create_defaults_list = list_anew
    ConfigLoaderImpl._compose_config_from_defaults_list = join_anew
    fairseq.dataclass.utils.initialize = initialize_anew
    fairseq.dataclass.utils.compose = compose_anew
    OmegaConf.structured = staticmethod(structured_anew)
    if "__deepcopy__" in vars(ConfigStore):
        del ConfigStore.__deepcopy__
