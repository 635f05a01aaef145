"""``--arch supermask_one_layer_roberta``: a RoBERTa of one random layer, with a learned mask for every depth."""

import torch
from fairseq.models import register_model
from fairseq.models.roberta import RobertaEncoder, RobertaModel, model as roberta
from fairseq.models.roberta.model import RobertaLMHead

from ...freezing.description import DescribedInCheckpoint
from ...freezing.heads import HeadsInTable
from ...masks.masked_embedding import TiedProjection
from ...masks.masked_linear import MaskedLinear
from ...options.for_fairseq.presets import register, supermask_preset
from ...options.for_fairseq.roberta import DEPTHS, SIZES, SupermaskRobertaOptions, add_flags, complete_options
from ...options.for_fairseq.transformer import as_transformer_config
from ...options.supermask_options import check_mask_options, whole_embeddings
from .build import compile_mask_table, description_flags, finish_supermask, mask_plans, new_embedding
from .inference import FoldsMasks
from .roberta_embeddings import earlier_recipes, fill_embeddings
from .stacks import MaskedParts, SupermaskEncoder


class SupermaskRobertaEncoder(RobertaEncoder):
    """RoBERTa's encoder with a ``SupermaskEncoder`` as its stack."""

    def __init__(self, options, dictionary, parts):
        self.parts = parts
        super().__init__(options, dictionary)
        del self.parts

    def build_embedding(self, vocab_size, embedding_dim, padding_idx):
        return new_embedding(self.parts, self.args, self.dictionary, embedding_dim)

    def build_encoder(self, args, dictionary, embed_tokens):
        return SupermaskEncoder(as_transformer_config(args), dictionary, embed_tokens, self.parts)

    def build_lm_head(self, embed_dim, output_dim, activation_fn, weight):
        if whole_embeddings(self.args):
            return super().build_lm_head(embed_dim, output_dim, activation_fn, weight)
        if weight is not None:
            projection = TiedProjection(self.sentence_encoder.embed_tokens)
        else:
            projection = self.parts.make(
                MaskedLinear, (embed_dim, output_dim), "lm_head.projection", "output_projection"
            )
        return MaskedLMHead(embed_dim, output_dim, activation_fn, projection)


class MaskedLMHead(RobertaLMHead):
    """fairseq's language model head with the masked or rounded ``weight`` of ``projection`` as its last matrix."""

    def __init__(self, embed_dim, output_dim, activation_fn, projection):
        super().__init__(embed_dim, output_dim, activation_fn, weight=projection.weight.detach())
        self.projection = projection

    weight = property(lambda self: self.projection.weight, lambda self, given: None)


@register_model("supermask_one_layer_roberta")
class SupermaskOneLayerRoberta(HeadsInTable, DescribedInCheckpoint, FoldsMasks, RobertaModel):
    """fairseq's RoBERTa with one random frozen layer, applied L times with L learned masks.

    Every weight matrix of layer i is W * M_i with the mask M_i of this layer, without biases (Shen et al., 2021, "What's Hidden
    in a One-layer Randomly Weighted Transformer?").

    These parameters are trained: the scores of the masks, all classification heads, the dense layer and biases of the language model head,
    and with ``--mask-layernorm affine`` the LayerNorms. The last matrix of the language model head is tied to the token embedding, and
    shares the embedding's mask or rounding. The position embedding is trained if ``--mask-embeddings`` trains the token embedding.
    Otherwise it is frozen at random values or at the values of ``--mask-embeddings-from``.
    """

    description_flags = description_flags(DEPTHS)
    resume_flags = {"freeze": "--freeze"}
    frozen_with_embeddings = {"masked": "pos", "frozen": "emb,pos"}

    @staticmethod
    def add_args(parser):
        add_flags(parser, SupermaskRobertaOptions)

    @classmethod
    @torch.inference_mode(False)
    def build_model(cls, args, task):
        """Build the model. All its layers share the weights of one random layer."""
        options = complete_options(args, task)
        check_mask_options(options)
        plans = mask_plans(options, DEPTHS)
        parts = MaskedParts("encoder", options, plans["encoder"], of_bert=True)
        depth = options.encoder_layers
        model = cls(options, SupermaskRobertaEncoder(options, task.source_dictionary, parts))
        options.encoder_layers = (
            depth  # with --encoder-layers-to-keep, fairseq has replaced it by the number of kept layers
        )
        # fairseq has initialised the whole model, so it cannot overwrite the tensors that are drawn here.
        fill_embeddings(model.encoder, options)
        model.plans = plans
        finish_supermask(model, plans, options)
        if options.mask_init_weights == "paper_code":
            model.earlier_recipes = earlier_recipes(model.recipes)
        return model

    def compile_slot_table(self):
        return compile_mask_table(self, self.plans, self.args)


PRESETS = {
    name: supermask_preset(SupermaskRobertaOptions, DEPTHS, fairseq_preset, **sizes)
    for name, (fairseq_preset, sizes) in SIZES.items()
}
register(
    "supermask_one_layer_roberta", PRESETS, supermask_preset(SupermaskRobertaOptions, DEPTHS, roberta.base_architecture)
)
