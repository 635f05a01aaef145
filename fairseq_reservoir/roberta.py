"""What our RoBERTa models share: fairseq's ``roberta``, whose stack they replace, their flags and the sizes of their presets."""

from argparse import Namespace
from dataclasses import dataclass
from typing import Optional

from fairseq.dataclass import FairseqDataclass
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models.roberta import RobertaEncoder, RobertaModel, model as roberta
from fairseq.models.roberta.model import RobertaLMHead
from fairseq.modules.transformer_sentence_encoder import init_bert_params

from .modules.masked_embedding import TiedProjection
from .modules.masked_linear import MaskedLinear
from .reservoir_stacks import ReservoirEncoder
from .supermask_build import new_embedding
from .supermask_options import MaskOptions
from .supermask_stacks import SupermaskEncoder
from .transformer_options import (
    STUDY,
    TINY,
    EncoderPlanOptions,
    FrozenLayerOptions,
    as_namespace,
    as_transformer_config,
    option,
)

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
    """Where the token vectors of a RoBERTa come from."""

    mask_embeddings_from: Optional[str] = option(
        None,
        "start from the token vectors and positions of this RoBERTa checkpoint, fairseq's or ours, of the same width and "
        "dictionary; read when training starts, not afterwards",
        "CHECKPOINT",
    )
    encoder_embed_path: Optional[str] = option(
        None, "word vectors to start from, in word2vec's text format, as fairseq-reservoir dump-embeddings writes them", "FILE"
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
    if not hasattr(options, "max_positions"):
        options.max_positions = getattr(options, "tokens_per_sample", None) or task.max_positions()
    return options


class HeadsInTable:
    """To be mixed into a RoBERTa with a slot table: its task adds classification heads once the model is built."""

    def register_classification_head(self, name, num_classes=None, inner_dim=None, **kwargs):
        super().register_classification_head(name, num_classes, inner_dim, **kwargs)
        self.slot_table = self.compile_slot_table()

    def heads_of(self, state_dict) -> None:
        """Adds the classification heads of a state dict that the model does not have."""
        for name, tensor in state_dict.items():
            group, _, head = name.partition(".")
            if group == "classification_heads" and head.endswith(".out_proj.weight"):
                head = head.split(".")[0]
                if head not in self.classification_heads:
                    self.register_classification_head(head, len(tensor), tensor.shape[1])


class SupermaskRobertaEncoder(RobertaEncoder):
    """RoBERTa's encoder with a ``SupermaskEncoder`` for a stack."""

    def __init__(self, options, dictionary, parts):
        self.parts = parts
        super().__init__(options, dictionary)
        del self.parts

    def build_embedding(self, vocab_size, embedding_dim, padding_idx):
        return new_embedding(self.parts, self.args, self.dictionary, embedding_dim)

    def build_encoder(self, args, dictionary, embed_tokens):
        return SupermaskEncoder(as_transformer_config(args), dictionary, embed_tokens, self.parts)

    def build_lm_head(self, embed_dim, output_dim, activation_fn, weight):
        if self.args.mask_embeddings != "masked":
            return super().build_lm_head(embed_dim, output_dim, activation_fn, weight)
        if weight is not None:
            projection = TiedProjection(self.sentence_encoder.embed_tokens)
        else:
            projection = self.parts.make(MaskedLinear, (embed_dim, output_dim), "lm_head.projection", "output_projection")
        return MaskedLMHead(embed_dim, output_dim, activation_fn, projection)


class MaskedLMHead(RobertaLMHead):
    """fairseq's head, whose last matrix is the masked ``weight`` of ``projection`` and no parameter of its own."""

    def __init__(self, embed_dim, output_dim, activation_fn, projection):
        super().__init__(embed_dim, output_dim, activation_fn, weight=projection.weight.detach())
        self.projection = projection

    weight = property(lambda self: self.projection.weight, lambda self, given: None)


class ReservoirRobertaEncoder(RobertaEncoder):
    """RoBERTa's encoder with a ``ReservoirEncoder`` for a stack."""

    def __init__(self, options, dictionary, slots):
        self.slots = slots
        super().__init__(options, dictionary)

    def build_encoder(self, args, dictionary, embed_tokens):
        encoder = ReservoirEncoder(as_transformer_config(args), dictionary, embed_tokens, self.slots)
        encoder.apply(init_bert_params)  # as fairseq does, and once more in RobertaModel: the same random numbers are used up
        return encoder
