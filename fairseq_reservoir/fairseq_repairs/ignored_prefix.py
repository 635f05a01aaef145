"""Repair of ``--ignore-prefix-size``, which omits the first target tokens of each sentence from the loss."""

from fairseq.criterions import label_smoothed_cross_entropy_with_rdrop as rdrop
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion

from .given import Given
from .repair import repair, wrap


@repair("ignored-prefix")
def count_no_ignored_prefix():
    """Make the count ``ntokens`` exclude the tokens that ``--ignore-prefix-size`` ignores (fairseq PR #4842).

    fairseq omits the prefix from the sum of the losses, but counts its tokens in ``ntokens`` and ``sample_size``. Losses, perplexity and
    gradients are therefore too small. The defect concerns ``label_smoothed_cross_entropy`` and all its subclasses. In
    ``label_smoothed_cross_entropy_with_alignment``, fairseq accepts the flag and ignores it. With ``--rdrop-alpha`` fairseq ends in a
    RuntimeError, because the logits contain the prefix and the padding mask does not.
    """

    def build_criterion(original, criterion_class, cfg, task):
        criterion = original(criterion_class, cfg, task)
        size = Given(cfg).ignore_prefix_size or 0
        if size > 0:
            criterion.ignore_prefix_size = size
            criterion.register_forward_hook(_count_tokens_with_a_loss, with_kwargs=True)
        return criterion

    def compute_kl_loss(original, model, net_output, pad_mask=None, reduce=True):
        logits = net_output[0]
        if pad_mask is not None:
            copies = logits.size(0) // 2
            prefix = logits.size(1) - pad_mask.size(0) // copies
            if prefix:
                net_output = (logits[:, prefix:].contiguous(), *net_output[1:])
        return original(model, net_output, pad_mask, reduce)

    wrap(LabelSmoothedCrossEntropyCriterion, "build_criterion", build_criterion)
    wrap(rdrop, "compute_kl_loss", compute_kl_loss)


def _count_tokens_with_a_loss(criterion, args, kwargs, output):
    """Forward hook of a criterion: correct ``ntokens`` and ``sample_size``. Both numbers stay on the device, to avoid a synchronisation."""
    sample = kwargs["sample"] if "sample" in kwargs else args[1]
    loss, sample_size, log = output
    counted = sample["target"][:, criterion.ignore_prefix_size :].ne(criterion.padding_idx).sum()
    log["ntokens"] = counted
    if not criterion.sentence_avg:
        sample_size = log["sample_size"] = counted.clone()
    return loss, sample_size, log
