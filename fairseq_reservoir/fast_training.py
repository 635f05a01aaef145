"""What a training step on a CPU spends outside its matrix products, had back by choice: dropout and the label-smoothed loss."""

from fairseq.criterions import register_criterion
from fairseq.criterions.label_smoothed_cross_entropy import (
    LabelSmoothedCrossEntropyCriterion,
    LabelSmoothedCrossEntropyCriterionConfig,
)
from fairseq.modules.fairseq_dropout import FairseqDropout
from torch import nn

from .modules.fast_dropout import fast_dropout
from .modules.label_smoothing import label_smoothing


class FastFairseqDropout(FairseqDropout):
    """fairseq's dropout with ``fast_dropout``'s random numbers."""

    def forward(self, x, inplace: bool = False):
        if self.p > 0 and (self.training or self.apply_during_inference):
            return fast_dropout(x, self.p)
        return x


def use_fast_dropout(model: nn.Module) -> None:
    """Lets every dropout of a model that fairseq's layers do not fuse into attention be a fast one."""
    for module in model.modules():
        if type(module) is FairseqDropout:
            module.__class__ = FastFairseqDropout


@register_criterion("fused_label_smoothed_cross_entropy", dataclass=LabelSmoothedCrossEntropyCriterionConfig)
class FusedLabelSmoothedCrossEntropyCriterion(LabelSmoothedCrossEntropyCriterion):
    """fairseq's ``label_smoothed_cross_entropy``, equal up to rounding, in fewer passes over words x vocabulary.

    With an adaptive softmax, a prefix that does not count, or a loss for each word it is fairseq's own.
    """

    def compute_loss(self, model, net_output, sample, reduce=True):
        adaptive = getattr(getattr(model, "decoder", None), "adaptive_softmax", None) is not None
        if adaptive or self.ignore_prefix_size or not reduce:
            return super().compute_loss(model, net_output, sample, reduce)
        logits, target = net_output[0], model.get_targets(sample, net_output)
        return label_smoothing(logits.reshape(-1, logits.shape[-1]), target.reshape(-1), self.eps, self.padding_idx)
