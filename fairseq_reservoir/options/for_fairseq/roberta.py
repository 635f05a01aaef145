"""The flags of our RoBERTa models and the sizes of their presets."""

from argparse import Namespace
from dataclasses import dataclass

from fairseq.models.roberta import RobertaModel, model as roberta

from ..fairseq_flags import PositionFlags
from ..layer_options import EncoderPlanOptions, FrozenLayerOptions
from ..reading import read
from ..supermask_options import MaskOptions
from ..vector_options import RobertaVectorOptions
from .namespaces import as_namespace
from .parser import add_flags as add_flags_of
from .transformer import STUDY, TINY

DEPTHS = {"encoder": 12}
# Preset -> fairseq's architecture function, and sizes that are set before it is called. ``base`` and ``large`` are fairseq's presets.
SIZES = {
    "tiny": (roberta.base_architecture, {name: size for name, size in TINY.items() if name.startswith("encoder_")}),
    "study": (roberta.base_architecture, {name: size for name, size in STUDY.items() if name.startswith("encoder_")}),
    "base": (roberta.roberta_base_architecture, {}),
    "large": (roberta.roberta_large_architecture, {"encoder_layers": 24}),
}


@dataclass
class ReservoirRobertaOptions(FrozenLayerOptions, EncoderPlanOptions):
    """The flags that ``reservoir_roberta`` adds to fairseq's flags of ``roberta``."""


@dataclass
class SupermaskRobertaOptions(MaskOptions, RobertaVectorOptions):
    """The flags that ``supermask_one_layer_roberta`` adds to fairseq's flags of ``roberta``."""


def add_flags(parser, options) -> None:
    """Add fairseq's flags of ``roberta`` and the flags of a dataclass to a parser."""
    RobertaModel.add_args(parser)
    add_flags_of(parser, options, delete_default=True)


def complete_options(args, task) -> Namespace:
    """Copy and complete the options of a RoBERTa. If ``max_positions`` is missing, set it to the task's limit on the length of a sample."""
    options = as_namespace(args)
    flags = read(PositionFlags, options)
    if flags.max_positions is None:
        options.max_positions = flags.tokens_per_sample or task.max_positions()
    return options
