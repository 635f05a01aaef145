"""``--criterion adaptive_loss`` is the negative logarithm of the adaptive softmax's own probabilities, of every word."""

from types import SimpleNamespace

import pytest
import torch
from fairseq.criterions.adaptive_loss import AdaptiveLoss
from fairseq.modules import AdaptiveSoftmax

PADDING = 1
WORDS = torch.tensor([[0, 2, 9, 10, 11], [12, 19, 20, 21, 39], [11, 21, 22, PADDING, PADDING]])


class Model(torch.nn.Module):
    """Answers with one vector a word; of the decoder only the softmax is there."""

    def __init__(self):
        super().__init__()
        softmax = AdaptiveSoftmax(40, 16, [10, 20], dropout=0.0, factor=2.0)
        self.decoder = torch.nn.Module()
        self.decoder.adaptive_softmax = softmax
        self.vectors = torch.nn.Parameter(torch.randn(*WORDS.shape, 16))

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


SAMPLE = {"net_input": {}, "target": WORDS}


def cost(softmax, word, vector):
    """- ln p(word): of a frequent word among those and the two bands; of another its band's, and its own in it."""
    of_head = softmax.head(vector).log_softmax(0)
    for band, (begin, end) in enumerate([(10, 20), (20, 40)]):
        if begin <= word < end:
            return -of_head[10 + band] - softmax.tail[band](vector).log_softmax(0)[word - begin]
    return -of_head[word]


def reference(model):
    softmax = model.decoder.adaptive_softmax
    pairs = zip(WORDS.view(-1).tolist(), model.vectors.view(-1, 16))
    return sum(cost(softmax, word, vector) for word, vector in pairs if word != PADDING)


def test_every_word_is_counted(model, criterion):
    loss, sample_size, log = criterion(model, SAMPLE)
    torch.testing.assert_close(loss, reference(model))
    assert (sample_size, log["ntokens"], log["nsentences"], log["loss"].item()) == (13, 13, 3, loss.item())


def test_it_is_what_eval_lm_says(model, criterion):
    log_probs = model.decoder.adaptive_softmax.get_log_prob(model.vectors.detach(), None)
    of_words = log_probs.gather(-1, WORDS.unsqueeze(-1)).squeeze(-1)[WORDS != PADDING]
    torch.testing.assert_close(criterion(model, SAMPLE)[0].item(), -of_words.sum().item(), rtol=1e-5, atol=0)


def test_every_word_is_learned(model, criterion):
    gradients = torch.autograd.grad(criterion(model, SAMPLE)[0], list(model.parameters()))
    expected = torch.autograd.grad(reference(model), list(model.parameters()))
    for gradient, wanted in zip(gradients, expected):
        torch.testing.assert_close(gradient, wanted)


def test_fairseq_alone_leaves_out_number_one_of_every_band(model, criterion):
    plain = AdaptiveLoss.forward.__wrapped__(criterion, model, SAMPLE)[0].detach()
    softmax, left_out = model.decoder.adaptive_softmax, 0.0
    for band, word in enumerate([11, 21]):  # number 1 of the words 10 to 19, and of 20 to 39
        for vector in model.vectors[WORDS == word]:
            left_out -= softmax.tail[band](vector).log_softmax(0)[1]
    torch.testing.assert_close(plain.item(), (reference(model) - left_out).item(), rtol=1e-5, atol=0)
