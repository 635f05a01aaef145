"""Repair of ``--criterion adaptive_loss``."""

import torch.nn.functional as F
from fairseq import utils
from fairseq.criterions.adaptive_loss import AdaptiveLoss

from .repair import repair, wrap


@repair("adaptive-loss")
def count_the_second_word_of_every_band():
    """Let ``--criterion adaptive_loss`` count the loss of every token, as ``fairseq-eval-lm`` does.

    The adaptive softmax splits the dictionary into frequent tokens and bands of rare tokens. In each band, the tokens are numbered from 0.
    fairseq's criterion ignores the token with number 1 in every band, because padding has number 1 in the dictionary. For this token, the
    model learns to predict the band, but not the token within the band.
    """
    wrap(AdaptiveLoss, "forward", forward)


def forward(original, criterion, model, sample, reduce=True):
    """L = - sum over non-padding tokens of (ln p(band or frequent token) + ln p(token | band))."""
    if not reduce:  # fairseq never passes False, and its own function raises an error for it
        return original(criterion, model, sample, reduce)
    output = model(**sample["net_input"])
    targets = model.get_targets(sample, output)
    scores, numbers = model.decoder.adaptive_softmax(output[0], targets.view(-1))
    loss = F.cross_entropy(scores[0], numbers[0], ignore_index=criterion.padding_idx, reduction="sum")
    for of_band, in_band in zip(scores[1:], numbers[1:]):
        if in_band is not None:
            loss = loss + F.cross_entropy(of_band, in_band, reduction="sum")
    ntokens = utils.strip_pad(targets, criterion.padding_idx).numel()
    sample_size = sample["target"].size(0) if criterion.sentence_avg else ntokens
    log = {"loss": loss.data, "ntokens": ntokens, "nsentences": targets.size(0), "sample_size": sample_size}
    return loss, sample_size, log
