"""fairseq's cross entropies, with the loss computed by the decoder. On a CPU, the decoder then computes no logits at padding."""

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
from .fused_criterion import FusedLabelSmoothedCrossEntropyCriterion
from .loss_decoder import LossDecoder, LossRequest, returning_losses

# Functions, not classes, because a subclass may override them and use logits or attention weights differently.
_MODELS = TransformerModelBase.forward, FairseqLanguageModel.forward
_DECODERS = TransformerDecoderBase.forward, LossDecoder.output_layer, TransformerDecoderBase.output_layer
_CRITERIA = CrossEntropyCriterion.forward, LabelSmoothedCrossEntropyCriterion.forward
_LOSSES = (
    CrossEntropyCriterion.compute_loss,
    LabelSmoothedCrossEntropyCriterion.compute_loss,
    FusedLabelSmoothedCrossEntropyCriterion.compute_loss,
)


class FastLoss(MixedIn):
    """Mix-in for ``label_smoothed_cross_entropy``, its fused version and ``cross_entropy``: the decoder computes the loss.

    The loss is the same up to rounding. With ``reduce=False``, fairseq's own function runs and computes a loss for each token.
    """

    def forward(self, model, sample, reduce=True):
        if not reduce:
            return super().forward(model, sample, reduce)
        with returning_losses(LossRequest(sample["target"], getattr(self, "eps", 0.0), self.padding_idx)):
            return super().forward(model, sample, reduce)

    def compute_loss(self, model, net_output, sample, reduce=True):
        if isinstance(net_output[0], tuple):
            return net_output[0]
        return super().compute_loss(model, net_output, sample, reduce)


def reads_only_logits(criterion: type[FairseqCriterion]) -> bool:
    """Whether a criterion uses only the decoder's logits."""
    is_usual = criterion.forward in (*_CRITERIA, FastLoss.forward)
    return is_usual and criterion.compute_loss in (*_LOSSES, FastLoss.compute_loss)


def unsupported_reason(model: nn.Module, criterion: type, options) -> str | None:
    """Return why a model and a criterion cannot use ``FastLoss``; None if they can. ``options``: the criterion's options, as attributes."""
    decoder = getattr(model, "decoder", None)
    if not reads_only_logits(criterion):
        return f"{criterion.__name__} is not one of fairseq's cross entropies"
    if type(model).forward not in _MODELS or not isinstance(decoder, TransformerDecoderBase):
        return f"{type(model).__name__} has no Transformer decoder"
    if type(decoder).forward not in _DECODERS or type(decoder).output_layer not in _DECODERS:
        return f"{type(decoder).__name__} overrides the output layer of fairseq's decoder"
    if decoder.adaptive_softmax is not None:
        return "--adaptive-softmax-cutoff uses another loss"
    flags = read(CriterionFlags, options)
    if flags.ignore_prefix_size:
        return "--ignore-prefix-size is not supported"
    return "--report-accuracy reads all logits" if flags.report_accuracy else None


def use_fast_loss(model: nn.Module, criterion: FairseqCriterion) -> FairseqCriterion:
    """Replace the model's decoder by one that computes the loss, and return a criterion that uses this loss.

    Call this only if ``unsupported_reason`` returns None.
    """
    decoder: Any = with_mix_in(LossDecoder, model.decoder)
    decoder.is_product = _is_product(decoder.output_projection)
    model.decoder = decoder
    fast: FairseqCriterion = with_mix_in(FastLoss, criterion)
    return fast


def _is_product(projection):
    plain = type(projection) is nn.Linear and projection.bias is None and not projection._forward_pre_hooks
    return plain or getattr(projection, "is_product", False)
