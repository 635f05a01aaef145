"""``--arch frozen_A`` for every architecture A of fairseq: A with components frozen by ``--freeze`` and ``--freeze-except``."""

from fairseq.models import (
    ARCH_CONFIG_REGISTRY,
    ARCH_MODEL_INV_REGISTRY,
    MODEL_DATACLASS_REGISTRY,
    MODEL_REGISTRY,
    register_model,
    register_model_architecture,
)

from ...freezing.description import DescribedInCheckpoint
from .components import architecture, with_components

PREFIX = "frozen_"


def _register_all():
    for name, architectures in list(ARCH_MODEL_INV_REGISTRY.items()):
        if issubclass(MODEL_REGISTRY[name], DescribedInCheckpoint):
            continue  # the models of this package have these flags already
        frozen, dataclass = with_components(MODEL_REGISTRY[name], MODEL_DATACLASS_REGISTRY.get(name))
        # With a dataclass, this also registers an architecture without checks.
        register_model(PREFIX + name, dataclass=dataclass)(frozen)
        for arch in list(architectures):
            fill = architecture(ARCH_CONFIG_REGISTRY[arch])
            if dataclass and arch == name:
                ARCH_CONFIG_REGISTRY[PREFIX + arch] = fill
            else:
                register_model_architecture(PREFIX + name, PREFIX + arch)(fill)


_register_all()
