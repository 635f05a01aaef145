"""Inputs of a slot table beside the layer plans and the parameters: the freeze flags, and facts about the built model."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from .flops import Flow
from .frozen_by_spec import Aliases


@dataclass(frozen=True)
class FreezeChoices:
    """The flags that freeze components.

    Attributes:
        freeze, freeze_except: freeze specs.
        frozen_init: initialiser of the tensors that these specs freeze, a key of ``freeze_spec.FROZEN_INITS``.
        train_layernorm: whether the LayerNorms of frozen layers are trained.
    """

    freeze: str | None = None
    freeze_except: str | None = None
    frozen_init: str = "model"
    train_layernorm: bool = False


@dataclass(frozen=True)
class ModelFacts:
    """Facts about a built model that do not follow from the names and shapes of its parameters.

    Attributes:
        untrained: names of the parameters that were already frozen before this package freezes parameters.
        aliases: further name of a tied parameter -> (name in the list of parameters, shape). An alias adds FLOPs to the table, but no
            parameters.
        shared: triples (name, shape, number of users) of shared random tensors. The users are layers with masks on the tensor,
            or adapters. The tensors are frozen.
        more_follows: whether adapters or classification heads may be added later. A model without trained parameters is then accepted.
        kept: pruned stack -> numbers of its kept layers, such as "0,2". Freeze specs use the layer numbers of the unpruned model,
            and may name removed layers.
        flow: facts about the forward pass.
    """

    untrained: Iterable[str] = ()
    aliases: Aliases = field(default_factory=dict)
    shared: Iterable[tuple[str, Sequence[int], int]] = ()
    more_follows: bool = False
    kept: dict[str, str] = field(default_factory=dict)
    flow: Flow = field(default_factory=Flow)
