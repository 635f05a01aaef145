"""``--arch reservoir_roberta``: RoBERTa some of whose layers are random and never trained."""

from fairseq.models import register_model
from fairseq.models.roberta import RobertaEncoder, RobertaModel, model as roberta
from fairseq.modules.transformer_sentence_encoder import init_bert_params

from ...freezing.description import DescribedInCheckpoint
from ...freezing.heads import HeadsInTable
from ...freezing.reservoir_build import RESUME_FLAGS, description_flags, finish_reservoir, freeze_and_fill
from ...options.plans import plans_of
from ...options.presets import register, reservoir_preset
from ...options.roberta_options import DEPTHS, SIZES, ReservoirRobertaOptions, add_flags, complete_options
from ...options.transformer_options import as_transformer_config
from .stacks import ReservoirEncoder


class ReservoirRobertaEncoder(RobertaEncoder):
    """RoBERTa's encoder with a ``ReservoirEncoder`` for a stack."""

    def __init__(self, options, dictionary, slots):
        self.slots = slots
        super().__init__(options, dictionary)

    def build_encoder(self, args, dictionary, embed_tokens):
        encoder = ReservoirEncoder(as_transformer_config(args), dictionary, embed_tokens, self.slots)
        # As fairseq does, and once more in RobertaModel: the same random numbers are used up.
        encoder.apply(init_bert_params)
        return encoder


@register_model("reservoir_roberta")
class ReservoirRoberta(HeadsInTable, DescribedInCheckpoint, RobertaModel):
    """fairseq's RoBERTa with a layer plan (Shen et al., 2021, "Reservoir Transformers") and a freeze spec.

    A plan of only ``L`` is fairseq's ``roberta`` bit for bit. ``slot_table`` says what is frozen; the language model head and
    all classification heads are trained unless ``--freeze`` names ``out``.
    """

    description_flags = description_flags(DEPTHS)
    resume_flags = RESUME_FLAGS

    @staticmethod
    def add_args(parser):
        add_flags(parser, ReservoirRobertaOptions)

    @classmethod
    def build_model(cls, args, task):
        """Builds the model, freezes what its slot table freezes and fills in the reservoirs.

        Raises:
            InputError: the options contradict each other; the message names the flag.
        """
        options = complete_options(args, task)
        plans = plans_of(options, DEPTHS)
        depth = options.encoder_layers
        model = cls(options, ReservoirRobertaEncoder(options, task.source_dictionary, plans.built["encoder"]))
        model.plans = plans
        options.encoder_layers = depth  # fairseq has counted those that --encoder-layers-to-keep leaves
        # fairseq's initialisation of the whole model is over now, so that what the seed draws stays.
        return finish_reservoir(model, plans, options)

    def compile_slot_table(self):
        return freeze_and_fill(self, self.plans.built, self.args)


PRESETS = {
    name: reservoir_preset(ReservoirRobertaOptions, DEPTHS, fairseq_preset, **sizes)
    for name, (fairseq_preset, sizes) in SIZES.items()
}
register("reservoir_roberta", PRESETS, reservoir_preset(ReservoirRobertaOptions, DEPTHS, roberta.base_architecture))
