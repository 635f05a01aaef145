"""Masked language model loss with a number of masked tokens from the host, against the loss of fairseq bit for bit on the CPU."""

import copy

import pytest
import torch
from fairseq.criterions.masked_lm import MaskedLmLoss
from fairseq.models.roberta import RobertaLMHead, RobertaModel
from torch import nn

from fairseq_reservoir.speed.fast_masked_lm import FastMaskedLm, PlacesLmHead, use_fast_masked_lm

PAD, WORDS = 1, 9
TARGET = torch.tensor([[PAD, 5, PAD, 6], [7, PAD, PAD, PAD], [PAD, PAD, 4, 8]])


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, 6)
        self.lm_head = RobertaLMHead(6, WORDS, "gelu", self.embed.weight)


class Model(nn.Module):
    """Embedding and language model head, as RoBERTa without layers."""

    def __init__(self):
        super().__init__()
        self.encoder = Encoder()

    def forward(self, src_tokens, masked_tokens=None, **unused):
        return self.encoder.lm_head(self.encoder.embed(src_tokens), masked_tokens), None

    def get_targets(self, sample, net_output):
        return sample["target"]


def criterion(kind=MaskedLmLoss):
    found = kind.__new__(kind)
    nn.Module.__init__(found)
    found.padding_idx, found.tpu = PAD, False
    return found


def sample(target, known=None):
    target = target.clone()
    if known is not None:
        target.host_copy = known
    tokens = torch.arange(target.numel()).view(target.shape) % WORDS
    return {"target": target, "net_input": {"src_tokens": tokens}, "ntokens": target.numel(), "nsentences": len(target)}


def results(criterion, model, batch):
    loss, size, log = criterion(model, batch)
    loss.backward()
    return [loss, torch.as_tensor(size), *(torch.as_tensor(log[key]) for key in sorted(log))], [
        p.grad for p in model.parameters()
    ]


def models():
    torch.manual_seed(0)
    plain = Model()
    ours = copy.deepcopy(plain)
    head = ours.encoder.lm_head
    ours.encoder.lm_head = PlacesLmHead.__new__(type("RobertaLMHead", (PlacesLmHead, RobertaLMHead), {}))
    ours.encoder.lm_head.__dict__ = head.__dict__
    return plain, ours


FAST = type("MaskedLmLoss", (FastMaskedLm, MaskedLmLoss), {})


@pytest.mark.parametrize("target", [TARGET, torch.full((2, 3), PAD), torch.full((1, 2), 4)])
def test_same_bits(target):
    plain, ours = models()
    expected = results(criterion(), plain, sample(target))
    found = results(criterion(FAST), ours, sample(target, known=target))
    for theirs, mine in zip(expected, found):
        assert all(p.equal(q) and p.dtype == q.dtype for p, q in zip(theirs, mine))


def test_batches_that_are_not_marked():
    plain, ours = models()
    expected, found = results(criterion(), plain, sample(TARGET)), results(criterion(FAST), ours, sample(TARGET))
    assert all(p.equal(q) for theirs, mine in zip(expected, found) for p, q in zip(theirs, mine))


def test_other_models_keep_their_criterion():
    own, model = criterion(), Model()
    assert use_fast_masked_lm(model, own) is own and not isinstance(model.encoder.lm_head, PlacesLmHead)
    assert not issubclass(Model, RobertaModel)
