"""Masked embedding, its padding row and the tied projection."""

import copy

import torch
import torch.nn.functional as F
from torch import nn

from fairseq_reservoir.masks.masked_embedding import MaskedEmbedding, TiedProjection
from fairseq_reservoir.masks.masked_weight import share_mask_cache


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = MaskedEmbedding(10, 6, padding_idx=1, keep_ratio=0.5, seed=1)
        self.projection = TiedProjection(self.embedding)

    def forward(self, tokens):
        return self.projection(self.embedding(tokens))


def test_forward():
    embedding, tokens = MaskedEmbedding(10, 6, seed=1), torch.tensor([[1, 2], [9, 1]])
    assert torch.equal(embedding(tokens), (embedding.frozen_weight * embedding.mask)[tokens])


def test_padding_is_zero_and_stays_zero():
    model = Tied()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    for _ in range(5):
        optimizer.zero_grad()
        F.cross_entropy(model(torch.tensor([0, 1, 5])), torch.tensor([3, 4, 5])).backward()
        assert (model.embedding.scores.grad[1] == 0).all()
        optimizer.step()
        assert (model.embedding(torch.tensor([1])) == 0).all() and (model.embedding.weight[1] == 0).all()
    assert model.embedding.mask.sum() == 30


def test_tied_projection_has_no_tensor_of_its_own():
    model = Tied()
    assert list(model.state_dict()) == ["embedding.scores", "embedding.frozen_weight"]
    assert [name for name, _ in model.named_parameters()] == ["embedding.scores"]
    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin.embedding.scores.copy_(torch.rand(10, 6))
    assert torch.equal(twin.projection.weight, twin.embedding.weight)
    assert not torch.equal(twin.projection.weight, model.projection.weight)


def test_gradient_of_a_tied_embedding_is_the_sum_of_both_uses():
    model = Tied()
    tokens, upstream = torch.tensor([0, 5, 1]), torch.randn(3, 10)
    (model(tokens) * upstream).sum().backward()
    weight = (model.embedding.frozen_weight * model.embedding.mask).requires_grad_()
    (F.linear(F.embedding(tokens, weight, 1), weight) * upstream).sum().backward()
    expected = weight.grad * model.embedding.frozen_weight * model.embedding.scores.detach().sign()
    torch.testing.assert_close(model.embedding.scores.grad, expected)


def test_a_tied_mask_is_selected_once_per_update():
    model = Tied()
    share_mask_cache(model)
    model.embedding.set_num_updates(1)
    assert model.projection.weight.data_ptr() == model.embedding.weight.data_ptr()


def test_folded():
    embedding, tokens = MaskedEmbedding(10, 6, padding_idx=1).eval(), torch.tensor([0, 1, 9])
    folded = embedding.folded()
    assert torch.equal(folded(tokens), embedding(tokens)) and folded.padding_idx == 1
    assert not folded.weight.requires_grad
