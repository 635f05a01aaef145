"""Halves the time in which fairseq turns flags into its configuration, most of the time of a training of a few updates.

fairseq writes every flag as an override for hydra, which parses some 340 of them anew for each run, and copies all registered
configurations before it reads one of them. Both are the same in every run: here texts are parsed once, and the registry, of which
hydra copies what it hands out anyway, is not copied as a whole.
"""

import copy

from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser

parse_anew = OverridesParser.parse_rule
_parsed = {}


def parse_once(self, text, rule):
    """hydra writes into what it is given, so that each run gets a copy."""
    if (text, rule) not in _parsed:
        _parsed[text, rule] = parse_anew(self, text, rule)
    return copy.copy(_parsed[text, rule])


def remember():
    """For this process, once."""
    OverridesParser.parse_rule = parse_once
    ConfigStore.__deepcopy__ = lambda store, memo: store


def forget():
    """As hydra has it."""
    OverridesParser.parse_rule = parse_anew
    if "__deepcopy__" in vars(ConfigStore):
        del ConfigStore.__deepcopy__
