"""Compute the loss of fairseq's masked language models without waiting for the device to count the masked tokens."""

from typing import Any

import torch
from fairseq import modules
from fairseq.criterions import FairseqCriterion
from fairseq.criterions.masked_lm import MaskedLmLoss
from fairseq.models.roberta import RobertaEncoder, RobertaLMHead, RobertaModel
from torch import nn

from ..layers.replace import MixedIn, with_mix_in
from . import known_padding


class FastMaskedLm(MixedIn):
    """Mix-in for ``masked_lm``: the sum of -log p(target) over the masked tokens, for batches that ``known_padding`` has marked.

    fairseq selects the masked tokens by a boolean mask. The host must therefore read the number of masked tokens from the device, in
    the forward pass and again in the backward pass. This mix-in counts the masked tokens in the CPU copy of the batch, and finds their
    positions with a stable sort on the device. Losses are bit-identical to fairseq's. fairseq's own function runs for batches that
    ``known_padding`` has not marked, and for batches without a masked token.
    """

    def forward(self, model, sample, reduce=True):
        target = sample["target"]
        copy = known_padding.host_copy(target)
        count = 0 if copy is None else int(copy.ne(self.padding_idx).sum())
        if self.tpu or not count:
            return super().forward(model, sample, reduce)
        masked = target.ne(self.padding_idx).flatten().to(torch.uint8)
        places = masked.argsort(descending=True, stable=True)[:count]
        logits = model(**sample["net_input"], masked_tokens=places)[0]
        labels = target.flatten().index_select(0, places)
        loss = modules.cross_entropy(
            logits.view(-1, logits.size(-1)), labels, reduction="sum", ignore_index=self.padding_idx
        )
        # On the device, as in fairseq, because ranks sum numbers on the CPU and on the device separately.
        sample_size = torch.full((), count, dtype=torch.int64, device=target.device)
        logging_output = {
            "loss": loss.data,
            "ntokens": sample["ntokens"],
            "nsentences": sample["nsentences"],
            "sample_size": sample_size,
        }
        return loss, sample_size, logging_output


class PlacesLmHead(MixedIn):
    """Mix-in for RoBERTa's language model head: ``masked_tokens`` can also be an int64 tensor of positions in the flattened batch."""

    def forward(self, features: Any, masked_tokens: Any = None, **kwargs: Any) -> Any:
        if masked_tokens is not None and masked_tokens.dtype == torch.int64:
            features, masked_tokens = features.flatten(0, 1).index_select(0, masked_tokens), None
        return super().forward(features, masked_tokens, **kwargs)


def is_usual_roberta(model: nn.Module) -> bool:
    """Whether a model computes the same function as fairseq's RoBERTa. Subclasses may compute another function."""
    encoder: Any = getattr(model, "encoder", None)
    return (
        isinstance(model, RobertaModel)
        and type(model).forward is RobertaModel.forward
        and type(encoder).output_layer is RobertaEncoder.output_layer
        and type(encoder.lm_head).forward in (RobertaLMHead.forward, PlacesLmHead.forward)
    )


def use_fast_masked_lm(model: nn.Module, criterion: FairseqCriterion) -> FairseqCriterion:
    """Let a RoBERTa model find masked tokens without waiting for the device, and return a criterion for this model.

    If the model or the criterion is not supported, return ``criterion`` and change nothing.
    """
    if not is_usual_roberta(model) or type(criterion).forward is not MaskedLmLoss.forward:
        return criterion
    encoder: Any = model.encoder
    encoder.lm_head = with_mix_in(PlacesLmHead, encoder.lm_head)
    return with_mix_in(FastMaskedLm, criterion)
