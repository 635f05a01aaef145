"""The flags of our RoBERTa models and the sizes of their presets."""

from argparse import Namespace
from dataclasses import dataclass

from fairseq.models.roberta import RobertaModel, model as roberta

from ..layer_options import EncoderPlanOptions, FrozenLayerOptions
from ..supermask_options import MaskOptions
from ..vector_options import RobertaVectorOptions
from .namespaces import as_namespace
from .parser import add_flags as add_flags_of
from .transformer import STUDY, TINY

DEPTHS = {"encoder": 12}
# fairseq's architecture function and the sizes that come before it; ``base`` and ``large`` are fairseq's own.
SIZES = {
    "tiny": (roberta.base_architecture, {name: size for name, size in TINY.items() if name.startswith("encoder_")}),
    "study": (roberta.base_architecture, {name: size for name, size in STUDY.items() if name.startswith("encoder_")}),
    "base": (roberta.roberta_base_architecture, {}),
    "large": (roberta.roberta_large_architecture, {"encoder_layers": 24}),
}


@dataclass
class ReservoirRobertaOptions(FrozenLayerOptions, EncoderPlanOptions):
    """The flags that ``reservoir_roberta`` adds to fairseq's."""


@dataclass
class SupermaskRobertaOptions(MaskOptions, RobertaVectorOptions):
    """The flags that ``supermask_one_layer_roberta`` adds to fairseq's."""


def add_flags(parser, options) -> None:
    """fairseq's flags of ``roberta`` and those of a dataclass."""
    RobertaModel.add_args(parser)
    add_flags_of(parser, options, delete_default=True)


def complete_options(args, task) -> Namespace:
    """A copy of the options of a RoBERTa, with as many positions as the task's longest sample if they do not say."""
    options = as_namespace(args)
    if getattr(options, "max_positions", None) is None:  # hydra has it with none
        options.max_positions = getattr(options, "tokens_per_sample", None) or task.max_positions()
    return options
