"""``--criterion adaptive_loss`` against the negative log probabilities of the adaptive softmax, for every token."""

from types import SimpleNamespace

import pytest
import torch
from fairseq.criterions.adaptive_loss import AdaptiveLoss
from fairseq.modules import AdaptiveSoftmax

PADDING = 1
TOKENS = torch.tensor([[0, 2, 9, 10, 11], [12, 19, 20, 21, 39], [11, 21, 22, PADDING, PADDING]])


class Model(torch.nn.Module):
    """Stub model that returns one vector per token. Its decoder has only the adaptive softmax."""

    def __init__(self):
        super().__init__()
        softmax = AdaptiveSoftmax(40, 16, [10, 20], dropout=0.0, factor=2.0)
        self.decoder = torch.nn.Module()
        self.decoder.adaptive_softmax = softmax
        self.vectors = torch.nn.Parameter(torch.randn(*TOKENS.shape, 16))

    def forward(self):
        return (self.vectors,)

    def get_targets(self, sample, output):
        return sample["target"]


@pytest.fixture
def model():
    torch.manual_seed(1)
    return Model()


@pytest.fixture
def criterion():
    task = SimpleNamespace(target_dictionary=SimpleNamespace(pad=lambda: PADDING))
    return AdaptiveLoss(task, sentence_avg=False)


SAMPLE = {"net_input": {}, "target": TOKENS}


def negative_log_likelihood(softmax, token, vector):
    """Return -ln p(token). For a token in a band, p is the head's p(band) times p(token) within the band."""
    head_log_probs = softmax.head(vector).log_softmax(0)
    for band, (begin, end) in enumerate([(10, 20), (20, 40)]):
        if begin <= token < end:
            return -head_log_probs[10 + band] - softmax.tail[band](vector).log_softmax(0)[token - begin]
    return -head_log_probs[token]


def reference(model):
    softmax = model.decoder.adaptive_softmax
    pairs = zip(TOKENS.view(-1).tolist(), model.vectors.view(-1, 16))
    return sum(negative_log_likelihood(softmax, token, vector) for token, vector in pairs if token != PADDING)


def test_every_token_is_in_the_loss(model, criterion):
    loss, sample_size, log = criterion(model, SAMPLE)
    torch.testing.assert_close(loss, reference(model))
    assert (sample_size, log["ntokens"], log["nsentences"], log["loss"].item()) == (13, 13, 3, loss.item())


def test_the_loss_equals_that_of_eval_lm(model, criterion):
    log_probs = model.decoder.adaptive_softmax.get_log_prob(model.vectors.detach(), None)
    token_log_probs = log_probs.gather(-1, TOKENS.unsqueeze(-1)).squeeze(-1)[TOKENS != PADDING]
    torch.testing.assert_close(criterion(model, SAMPLE)[0].item(), -token_log_probs.sum().item(), rtol=1e-5, atol=0)


def test_every_token_has_a_gradient(model, criterion):
    gradients = torch.autograd.grad(criterion(model, SAMPLE)[0], list(model.parameters()))
    expected = torch.autograd.grad(reference(model), list(model.parameters()))
    for gradient, expected_gradient in zip(gradients, expected):
        torch.testing.assert_close(gradient, expected_gradient)


def test_plain_fairseq_skips_token_1_of_each_band(model, criterion):
    plain = AdaptiveLoss.forward.__wrapped__(criterion, model, SAMPLE)[0].detach()
    softmax, skipped_loss = model.decoder.adaptive_softmax, 0.0
    for band, token in enumerate([11, 21]):  # token 1 of the band 10 to 19, and of the band 20 to 39
        for vector in model.vectors[TOKENS == token]:
            skipped_loss -= softmax.tail[band](vector).log_softmax(0)[1]
    torch.testing.assert_close(plain.item(), (reference(model) - skipped_loss).item(), rtol=1e-5, atol=0)
