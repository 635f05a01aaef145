"""The inputs of a slot table beside the layer plans and the parameters: the freeze flags, and facts of the built model."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from .flops import Flow
from .frozen_by_spec import Aliases


@dataclass(frozen=True)
class FreezeChoices:
    """The flags that freeze components.

    Attributes:
        freeze, freeze_except: freeze specs.
        frozen_init: initialiser of the tensors that they freeze, a key of ``freeze_spec.FROZEN_INITS``.
        train_layernorm: keep the LayerNorms of frozen slots trained.
    """

    freeze: str | None = None
    freeze_except: str | None = None
    frozen_init: str = "model"
    train_layernorm: bool = False


@dataclass(frozen=True)
class ModelFacts:
    """Facts of a built model that names and shapes of its parameters do not express.

    Attributes:
        untrained: names of parameters that the model itself does not train.
        aliases: further names of tied parameters, as name -> (owner's name, shape). They count FLOPs, not parameters.
        shared: triples (name, shape, number of users) of shared random tensors. The users are layers with masks on the tensor,
            or adapters. The tensors are frozen.
        more_follows: the model will get adapters or classification heads later, so that everything else may be frozen.
        kept: numbers of the kept layers of each pruned stack, as in "0,2". Specs use the layer numbers of the unpruned model, and
            may name removed layers.
        flow: facts about the forward pass.
    """

    untrained: Iterable[str] = ()
    aliases: Aliases = field(default_factory=dict)
    shared: Iterable[tuple[str, Sequence[int], int]] = ()
    more_follows: bool = False
    kept: dict[str, str] = field(default_factory=dict)
    flow: Flow = field(default_factory=Flow)
