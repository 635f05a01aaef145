"""Dataclasses registered with hydra are converted at their first use, into the same configuration as without the context manager."""

from dataclasses import dataclass

import pytest
from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf

from fairseq_reservoir.commands.lazy_configurations import lazy_configurations


@dataclass
class Options:
    width: int = 3
    name: str = "a"


@pytest.fixture
def store():
    """A store of its own instead of the one of the process."""
    return ConfigStore()


def test_the_loaded_configuration_is_the_same(store):
    with lazy_configurations():
        store.store(name="lazy", node=Options(width=5), group="g", provider="p")
    store.store(name="plain", node=Options(width=5), group="g", provider="p")
    lazy, plain = store.load("g/lazy.yaml"), store.load("g/plain.yaml")
    assert lazy.node == plain.node == {"width": 5, "name": "a"}
    assert OmegaConf.get_type(lazy.node) is OmegaConf.get_type(plain.node) is Options
    assert (lazy.group, lazy.package, lazy.provider) == (plain.group, plain.package, plain.provider) == ("g", None, "p")


def test_conversion_waits_for_the_first_use(store):
    with lazy_configurations():
        store.store(name="options", node=Options)
    assert store.repo["options.yaml"].registered is Options
    assert OmegaConf.is_config(store.repo["options.yaml"].node)
    assert OmegaConf.is_config(store.repo["options.yaml"].registered)


def test_changes_of_a_loaded_configuration_stay_out_of_the_store(store):
    with lazy_configurations():
        store.store(name="options", node=Options)
    store.load("options.yaml").node.width = 7
    assert store.load("options.yaml").node.width == 3


def test_later_registrations_are_converted_at_once(store):
    with lazy_configurations():
        pass
    store.store(name="options", node=Options)
    assert OmegaConf.is_config(store.repo["options.yaml"].node)
