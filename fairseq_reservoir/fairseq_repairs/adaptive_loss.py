"""A repair of ``--criterion adaptive_loss``."""

import torch.nn.functional as F
from fairseq import utils
from fairseq.criterions.adaptive_loss import AdaptiveLoss

from .repair import repair, wrap


@repair("adaptive-loss")
def count_the_second_word_of_every_band():
    """Let ``--criterion adaptive_loss`` count every word, as ``fairseq-eval-lm`` does.

    The adaptive softmax numbers the words of a rare band from 0. The criterion leaves out number 1 in each, as it does padding,
    which is word 1 of the dictionary: the second word of every band costs only what its band does, and is not learned in it.
    """
    wrap(AdaptiveLoss, "forward", forward)


def forward(original, criterion, model, sample, reduce=True):
    """L = - sum over words of (ln p(band or frequent word) + ln p(word | band)), over all that are not padding."""
    if not reduce:  # which fairseq itself never asks for, and cannot answer
        return original(criterion, model, sample, reduce)
    output = model(**sample["net_input"])
    words = model.get_targets(sample, output)
    scores, numbers = model.decoder.adaptive_softmax(output[0], words.view(-1))
    loss = F.cross_entropy(scores[0], numbers[0], ignore_index=criterion.padding_idx, reduction="sum")
    for of_band, in_band in zip(scores[1:], numbers[1:]):
        if in_band is not None:
            loss = loss + F.cross_entropy(of_band, in_band, reduction="sum")
    ntokens = utils.strip_pad(words, criterion.padding_idx).numel()
    sample_size = sample["target"].size(0) if criterion.sentence_avg else ntokens
    return (
        loss,
        sample_size,
        {
            "loss": loss.data,
            "ntokens": ntokens,
            "nsentences": words.size(0),
            "sample_size": sample_size,
        },
    )
