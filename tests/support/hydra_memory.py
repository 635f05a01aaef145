"""Takes most of the time off in which fairseq turns flags into its configuration, itself most of a training of a few updates.

fairseq writes every flag as an override for hydra, which parses some 340 of them anew for each run, copies all registered
configurations before it reads one of them, and then reads and joins the same twenty. All of it is the same in every run with
the same task, criterion and optimizer: here texts are parsed once, the registry, of which hydra copies what it hands out anyway, is
not copied as a whole, and what was joined is kept. Configurations from files, other than fairseq's own, are read anew.
"""

import copy
from pathlib import Path

import fairseq
from hydra._internal import defaults_list
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser

FAIRSEQS = str(Path(fairseq.__file__).parent / "config")
parse_anew = OverridesParser.parse_rule
list_anew = defaults_list._create_defaults_list
join_anew = ConfigLoaderImpl._compose_config_from_defaults_list
_parsed, _listed, _joined = {}, {}, {}


def parse_once(self, text, rule):
    """hydra writes into what it is given, so that each run gets a copy."""
    if (text, rule) not in _parsed:
        _parsed[text, rule] = parse_anew(self, text, rule)
    return copy.copy(_parsed[text, rule])


def list_once(repo, config_name, overrides, **how):
    """Which configurations are joined follows from the choices among them, and from the folders they are looked for in."""
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
    """``defaults`` that ``list_once`` keeps are known by being the same object."""
    if not any(listed[0] is defaults for listed, *_ in _listed.values()):
        return join_anew(self, defaults, repo)
    if id(defaults) not in _joined:
        _joined[id(defaults)] = join_anew(self, defaults, repo)
    return copy.deepcopy(_joined[id(defaults)])


def remember():
    """For this process, once."""
    OverridesParser.parse_rule = parse_once
    ConfigStore.__deepcopy__ = lambda store, memo: store
    defaults_list._create_defaults_list = list_once
    ConfigLoaderImpl._compose_config_from_defaults_list = join_once


def forget():
    """As hydra has it."""
    OverridesParser.parse_rule = parse_anew
    defaults_list._create_defaults_list = list_anew
    ConfigLoaderImpl._compose_config_from_defaults_list = join_anew
    if "__deepcopy__" in vars(ConfigStore):
        del ConfigStore.__deepcopy__
