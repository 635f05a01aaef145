"""``--arch reservoir_roberta``: a RoBERTa with frozen random layers."""

from fairseq.models import register_model
from fairseq.models.roberta import RobertaEncoder, RobertaModel, model as roberta
from fairseq.modules.transformer_sentence_encoder import init_bert_params

from ...freezing.description import DescribedInCheckpoint
from ...freezing.heads import HeadsInTable
from ...freezing.reservoir_build import RESUME_FLAGS, description_flags, finish_reservoir, freeze_and_fill
from ...options.for_fairseq.presets import register, reservoir_preset
from ...options.for_fairseq.roberta import DEPTHS, SIZES, ReservoirRobertaOptions, add_flags, complete_options
from ...options.for_fairseq.transformer import as_transformer_config
from ...options.plans import plans_of
from .stacks import ReservoirEncoder


class ReservoirRobertaEncoder(RobertaEncoder):
    """RoBERTa's encoder with a ``ReservoirEncoder`` as its stack."""

    def __init__(self, options, dictionary, slots):
        self.slots = slots
        super().__init__(options, dictionary)

    def build_encoder(self, args, dictionary, embed_tokens):
        encoder = ReservoirEncoder(as_transformer_config(args), dictionary, embed_tokens, self.slots)
        # fairseq initialises the encoder here and again in RobertaModel. We do the same to draw the same random numbers.
        encoder.apply(init_bert_params)
        return encoder


@register_model("reservoir_roberta")
class ReservoirRoberta(HeadsInTable, DescribedInCheckpoint, RobertaModel):
    """fairseq's RoBERTa with a layer plan (Shen et al., 2021, "Reservoir Transformers") and the flag ``--freeze``.

    With a plan of only ``L``, the model equals fairseq's ``roberta`` bit for bit. ``slot_table`` lists all frozen parameters.
    The language model head and all classification heads are trained unless ``--freeze`` names ``out``.
    """

    description_flags = description_flags(DEPTHS)
    resume_flags = RESUME_FLAGS

    @staticmethod
    def add_args(parser):
        add_flags(parser, ReservoirRobertaOptions)

    @classmethod
    def build_model(cls, args, task):
        """Build the model, freeze parameters according to its slot table, and draw its frozen random layers."""
        options = complete_options(args, task)
        plans = plans_of(options, DEPTHS)
        depth = options.encoder_layers
        model = cls(options, ReservoirRobertaEncoder(options, task.source_dictionary, plans.built["encoder"]))
        model.plans = plans
        options.encoder_layers = (
            depth  # with --encoder-layers-to-keep, fairseq has replaced it by the number of kept layers
        )
        # fairseq has initialised the whole model, so it cannot overwrite the tensors that are drawn here.
        return finish_reservoir(model, plans, options)

    def compile_slot_table(self):
        return freeze_and_fill(self, self.plans.built, self.args)


PRESETS = {
    name: reservoir_preset(ReservoirRobertaOptions, DEPTHS, fairseq_preset, **sizes)
    for name, (fairseq_preset, sizes) in SIZES.items()
}
register("reservoir_roberta", PRESETS, reservoir_preset(ReservoirRobertaOptions, DEPTHS, roberta.base_architecture))
