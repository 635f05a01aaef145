"""``--arch supermask_one_layer_roberta``: RoBERTa with one random layer, seen through a learned mask at every depth."""

from fairseq.models import register_model
from fairseq.models.roberta import RobertaModel, model as roberta

from ..identity import CheckpointIdentity
from ..presets import register, supermask_preset
from ..roberta import DEPTHS, SIZES, HeadsInTable, SupermaskRobertaEncoder, SupermaskRobertaOptions, add_flags, complete_options
from ..roberta_embeddings import fill_embeddings
from ..supermask_build import compile_mask_table, complete, identity_flags, mask_plans
from ..supermask_inference import FoldsMasks
from ..supermask_options import check_mask_options
from ..supermask_stacks import MaskedParts


@register_model("supermask_one_layer_roberta")
class SupermaskOneLayerRoberta(HeadsInTable, CheckpointIdentity, FoldsMasks, RobertaModel):
    """fairseq's RoBERTa whose layers are one random frozen layer, applied L times through L learned masks.

    Every weight matrix of layer i is W * M_i (Shen et al., 2021, "What's Hidden in a One-layer Randomly Weighted
    Transformer?"), without biases. Trained: the scores of the masks, and ordinarily the language model head (its dense
    layer and biases; its last matrix is that of the token embedding, and masked like it) and all classification heads;
    with ``--mask-layernorm affine`` the LayerNorms. Learned positions are random and frozen, or those of
    ``--mask-embeddings-from``, unless ``--mask-embeddings`` is trained.
    """

    identity_flags = identity_flags(DEPTHS)
    resume_flags = {"freeze": "--freeze"}
    frozen_with_embeddings = {"masked": "pos", "frozen": "emb,pos"}

    @staticmethod
    def add_args(parser):
        add_flags(parser, SupermaskRobertaOptions)

    @classmethod
    def build_model(cls, args, task):
        """Builds the model around one random layer.

        Raises:
            InputError: an option has a value that no mask can have, or a file of vectors does not fit.
        """
        options = complete_options(args, task)
        check_mask_options(options)
        plans = mask_plans(options, DEPTHS)
        parts = MaskedParts("encoder", options, plans["encoder"])
        model = cls(options, SupermaskRobertaEncoder(options, task.source_dictionary, parts))
        # fairseq's initialisation of the whole model is over now, so that what the seed draws stays.
        positions = fill_embeddings(model.encoder, options)
        model.plans = plans
        complete(model, plans, options, {"encoder": parts}).recipes.update(positions)
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
