"""The flags of our RoBERTa models and the sizes of their presets."""

from argparse import Namespace
from dataclasses import dataclass
from typing import Optional

from fairseq.dataclass import FairseqDataclass
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models.roberta import RobertaModel, model as roberta

from .flags import option
from .layer_options import EncoderPlanOptions, FrozenLayerOptions
from .supermask_options import MaskOptions
from .transformer_options import STUDY, TINY, as_namespace

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
class RobertaVectorOptions(FairseqDataclass):
    """The flags that give a RoBERTa its token vectors."""

    mask_embeddings_from: Optional[str] = option(
        None,
        "start from the token vectors and positions of this RoBERTa checkpoint, fairseq's or ours, of the same width and "
        "dictionary; read when training starts, not afterwards",
        "CHECKPOINT",
    )
    encoder_embed_path: Optional[str] = option(
        None,
        "word vectors to start from, in word2vec's text format, as fairseq-reservoir dump-embeddings writes them",
        "FILE",
    )


@dataclass
class SupermaskRobertaOptions(MaskOptions, RobertaVectorOptions):
    """The flags that ``supermask_one_layer_roberta`` adds to fairseq's."""


def add_flags(parser, options) -> None:
    """fairseq's flags of ``roberta`` and those of a dataclass."""
    RobertaModel.add_args(parser)
    gen_parser_from_dataclass(parser, options(), delete_default=True)


def complete_options(args, task) -> Namespace:
    """A copy of the options of a RoBERTa, with as many positions as the task's longest sample if they do not say."""
    options = as_namespace(args)
    if getattr(options, "max_positions", None) is None:  # hydra has it with none
        options.max_positions = getattr(options, "tokens_per_sample", None) or task.max_positions()
    return options
