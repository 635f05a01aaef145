"""Convert each dataclass that fairseq registers with hydra only when a configuration needs it.

fairseq registers 130 dataclasses when it is imported. hydra converts each into a dictionary of omegaconf, and copies all of them to
compose one configuration. A command needs only a few of them.
"""

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any


@contextlib.contextmanager
def lazy_configurations() -> Iterator[None]:
    """Delay hydra's conversion of dataclasses: each one registered in the ``with`` block is converted at its first use.

    Does nothing if hydra is not installed. ``fairseq-reservoir`` reads exports without hydra.
    """
    try:
        from hydra.core import config_store
    except ImportError:
        yield
        return
    given = config_store.OmegaConf, config_store.ConfigNode
    config_store.OmegaConf = SimpleNamespace(structured=lambda node: node)
    config_store.ConfigNode = _lazy_node(config_store.ConfigNode)
    try:
        yield
    finally:
        config_store.OmegaConf, config_store.ConfigNode = given


def _lazy_node(base: type) -> type:
    from omegaconf import OmegaConf

    class LazyNode(base):
        """Entry of hydra's store. Converts the registered object when ``node`` is first read."""

        registered: Any

        @property
        def node(self) -> Any:
            if not OmegaConf.is_config(self.registered):
                self.registered = OmegaConf.structured(self.registered)
            return self.registered

        @node.setter
        def node(self, value: Any) -> None:
            self.registered = value

    return LazyNode
