"""Losses that can be recorded in a CUDA graph: fairseq's cross entropies, and the loss of a masked language model."""

from typing import Any

import torch
from fairseq import modules
from fairseq.criterions import FairseqCriterion
from fairseq.criterions.masked_lm import MaskedLmLoss
from torch import Tensor

from ..fast_loss import reads_only_logits
from ..fast_masked_lm import FastMaskedLm, is_usual_roberta
from .padding import MASKED

_MASKED = MaskedLmLoss.forward, FastMaskedLm.forward


def unsupported_reason(criterion: FairseqCriterion, model: Any) -> str | None:
    """Return why the loss of a criterion and a model cannot be recorded; None if it can."""
    if is_masked(criterion) and not is_usual_roberta(model):
        return f"{type(model).__name__} is not a RoBERTa"
    if type(criterion).forward not in _MASKED and not reads_only_logits(type(criterion)):
        return f"{type(criterion).__name__} is not one of fairseq's cross entropies"
    return (
        "--report-accuracy copies values from the GPU to the CPU"
        if getattr(criterion, "report_accuracy", False)
        else None
    )


def is_masked(criterion: FairseqCriterion) -> bool:
    """Whether a criterion is the loss of a masked language model."""
    return isinstance(criterion, MaskedLmLoss)


def forward(criterion: FairseqCriterion, model: Any, sample: dict[str, Any]) -> tuple[Tensor, dict[str, Tensor]]:
    """Compute the loss of a padded batch. The host reads no value from the device.

    In a masked language model, predicted positions are selected by index. With a boolean mask, the host would wait for the number of
    positions.

    Returns:
        The loss to differentiate, and all tensors of the logging output, by name.
    """
    if not is_masked(criterion):
        loss, _, log = criterion(model, sample)
        return loss, {name: value for name, value in log.items() if isinstance(value, Tensor)}
    features = model(**sample["net_input"], features_only=True)[0]
    index, labels = sample[MASKED]["index"], sample[MASKED]["labels"]
    # fairseq's distributed wrapper forwards attributes to the model.
    logits = model.encoder.lm_head(features.flatten(0, 1).index_select(0, index))
    loss = modules.cross_entropy(logits, labels, reduction="sum", ignore_index=criterion.padding_idx)
    return loss, {"loss": loss.detach()}


def counts(criterion: FairseqCriterion, sample: dict[str, Any], several: bool = False) -> dict[str, Any]:
    """Return ``ntokens``, ``nsentences`` and ``sample_size`` of a batch; padding is not counted. Gradients are divided by the sample size.

    Args:
        several: whether several ranks train. fairseq sums numbers on the host and numbers on the device separately over all ranks. In an
            ordinary step of a masked language model, the sample size is on the device. Other ranks may run ordinary steps, so this rank's
            sample size must be on the device, too.
    """
    sentences, tokens = int(sample["nsentences"]), int(sample["ntokens"])
    size: Any = sentences if getattr(criterion, "sentence_avg", False) else tokens
    if is_masked(criterion):
        size = sample[MASKED]["count"]
        if several:
            size = torch.full((), size, dtype=torch.int64, device=sample["target"].device)
    return {"ntokens": tokens, "nsentences": sentences, "sample_size": size}
