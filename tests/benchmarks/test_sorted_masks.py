"""benchmarks/sorted_masks.py gives the same masks and gradients as the package."""

import pytest
import torch

from benchmarks.sorted_masks import sort_at_every_use
from fairseq_reservoir.masks.masked_weight import masked_modules
from tests.support.building import build_supermask, loss, pad, sentences


@pytest.mark.parametrize("keep", [0.1, 0.5])
def test_same_masks_same_gradients_and_a_sort_at_every_use(monkeypatch, keep):
    model, sorting = build_supermask(mask_keep_ratio=keep), sort_at_every_use(build_supermask(mask_keep_ratio=keep))
    sort, sorted_sizes = torch.Tensor.sort, []
    monkeypatch.setattr(torch.Tensor, "sort", lambda keys: sorted_sizes.append(keys.numel()) or sort(keys))
    for network in (model, sorting):
        network.set_num_updates(1)
        loss(network, pad(sentences(4, 3)), pad(sentences(3, 5, seed=2))).backward()
    found = masked_modules(sorting)
    for name, module in masked_modules(model).items():
        assert found[name].weight.equal(module.weight) and module.scores.grad.any(), name
        assert found[name].scores.grad.equal(module.scores.grad), name
    # Layers with 4 matrices of 8 x 8 and 2 of 8 x 12, or 8 and 2; embeddings of 20 tokens of width 8, the tied one used twice.
    in_training = 3 * (4 * 64 + 2 * 96) + 2 * (8 * 64 + 2 * 96) + 3 * 160
    assert sum(sorted_sizes) == in_training + (in_training - 160)  # and once each just now
