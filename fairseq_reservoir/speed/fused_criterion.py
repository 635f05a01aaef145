"""The criterion ``fused_label_smoothed_cross_entropy``: fairseq's label-smoothed loss in fewer passes over the logits."""

from fairseq.criterions import register_criterion
from fairseq.criterions.label_smoothed_cross_entropy import (
    LabelSmoothedCrossEntropyCriterion,
    LabelSmoothedCrossEntropyCriterionConfig,
)

from .label_smoothing import label_smoothing


@register_criterion("fused_label_smoothed_cross_entropy", dataclass=LabelSmoothedCrossEntropyCriterionConfig)
class FusedLabelSmoothedCrossEntropyCriterion(LabelSmoothedCrossEntropyCriterion):
    """fairseq's ``label_smoothed_cross_entropy`` in fewer passes over the logits, (tokens, vocabulary). The loss is equal up to rounding.

    fairseq's own loss is used with an adaptive softmax, with --ignore-prefix-size, and if a loss for each token is requested.
    """

    def compute_loss(self, model, net_output, sample, reduce=True):
        adaptive = getattr(getattr(model, "decoder", None), "adaptive_softmax", None) is not None
        if adaptive or self.ignore_prefix_size or not reduce:
            return super().compute_loss(model, net_output, sample, reduce)
        logits, target = net_output[0], model.get_targets(sample, net_output)
        return label_smoothing(logits.reshape(-1, logits.shape[-1]), target.reshape(-1), self.eps, self.padding_idx)
