"""Lets fairseq's cross entropies get their loss from the decoder, which computes it without logits of padding."""

from typing import Any

from fairseq.criterions import FairseqCriterion
from fairseq.criterions.cross_entropy import CrossEntropyCriterion
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.models import FairseqLanguageModel
from fairseq.models.transformer import TransformerDecoderBase, TransformerModelBase
from torch import nn

from ..layers.replace import MixedIn, with_mix_in
from ..options.fairseq_flags import CriterionFlags
from ..options.reading import read
from .counted_words import CountedWords, Wanted, losses_for
from .fused_criterion import FusedLabelSmoothedCrossEntropyCriterion

# By function, as a subclass that does more with its logits or its weights of attention is another one.
_MODELS = TransformerModelBase.forward, FairseqLanguageModel.forward
_DECODERS = TransformerDecoderBase.forward, CountedWords.output_layer, TransformerDecoderBase.output_layer
_CRITERIA = CrossEntropyCriterion.forward, LabelSmoothedCrossEntropyCriterion.forward
_LOSSES = (
    CrossEntropyCriterion.compute_loss,
    LabelSmoothedCrossEntropyCriterion.compute_loss,
    FusedLabelSmoothedCrossEntropyCriterion.compute_loss,
)


class FastLoss(MixedIn):
    """To be mixed into ``label_smoothed_cross_entropy``, ours of that name or ``cross_entropy``: the same loss up to rounding.

    A loss for each word is fairseq's own.
    """

    def forward(self, model, sample, reduce=True):
        if not reduce:
            return super().forward(model, sample, reduce)
        with losses_for(Wanted(sample["target"], getattr(self, "eps", 0.0), self.padding_idx)):
            return super().forward(model, sample, reduce)

    def compute_loss(self, model, net_output, sample, reduce=True):
        return (
            net_output[0]
            if isinstance(net_output[0], tuple)
            else super().compute_loss(model, net_output, sample, reduce)
        )


def reads_only_logits(criterion: type[FairseqCriterion]) -> bool:
    """Whether a class of criteria is one of those that look at nothing but the decoder's logits."""
    return criterion.forward in (*_CRITERIA, FastLoss.forward) and criterion.compute_loss in (
        *_LOSSES,
        FastLoss.compute_loss,
    )


def why_not(model: nn.Module, criterion: type, options) -> str | None:
    """Why a model and a criterion cannot have this loss, or None if they can.

    Args:
        options: of the criterion: anything with its attributes.
    """
    decoder = getattr(model, "decoder", None)
    if not reads_only_logits(criterion):
        return f"{criterion.__name__} is another criterion"
    if type(model).forward not in _MODELS or not isinstance(decoder, TransformerDecoderBase):
        return f"{type(model).__name__} has no decoder of a Transformer"
    if type(decoder).forward not in _DECODERS or type(decoder).output_layer not in _DECODERS:
        return f"{type(decoder).__name__} has an output of its own"
    if decoder.adaptive_softmax is not None:
        return "--adaptive-softmax-cutoff has a loss of its own"
    flags = read(CriterionFlags, options)
    if flags.ignore_prefix_size:
        return "--ignore-prefix-size"
    return "--report-accuracy reads all logits" if flags.report_accuracy else None


def use_fast_loss(model: nn.Module, criterion: FairseqCriterion) -> FairseqCriterion:
    """Replace the model's decoder by one that computes the loss, and return a criterion that takes the loss from there.

    Call it only if ``why_not`` returned None.
    """
    decoder: Any = with_mix_in(CountedWords, model.decoder)
    decoder.is_product = _is_product(decoder.output_projection)
    model.decoder = decoder
    fast: FairseqCriterion = with_mix_in(FastLoss, criterion)
    return fast


def _is_product(projection):
    plain = type(projection) is nn.Linear and projection.bias is None and not projection._forward_pre_hooks
    return plain or getattr(projection, "is_product", False)
