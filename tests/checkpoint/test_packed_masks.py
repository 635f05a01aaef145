"""Masks in an export: packed entries in place of the scores select the same mask."""

import pytest
import torch
from torch import nn

from fairseq_reservoir.checkpoint.ledger import ledger
from fairseq_reservoir.checkpoint.packed_masks import pack_masks
from fairseq_reservoir.errors import InputError
from fairseq_reservoir.masks import bits
from fairseq_reservoir.masks.masked_embedding import MaskedEmbedding
from fairseq_reservoir.masks.masked_linear import MaskedLinear
from fairseq_reservoir.masks.masked_weight import masked_modules, share_mask_cache

CHOICES = [
    {},
    {"keep_ratio": 0.1},
    {"scope": "row"},
    {"scope": "global"},
    {"ranking": "value"},
    {"kind": "signed"},
    {"coats": (0.3, 0.1)},
    {"coats": (0.2,), "kind": "signed"},
    {"pin": 0.3},
    {"pin": 0.3, "scope": "global", "coats": (0.2,)},
    {"random": True},
]


def model(**choices):
    built = nn.ModuleDict(
        {
            "a": MaskedLinear(13, 7, seed=1, name="a", **choices),
            "b": MaskedLinear(13, 7, seed=1, name="b", **choices),
            "e": MaskedEmbedding(11, 13, padding_idx=1, seed=1, name="e", **choices),
        }
    )
    share_mask_cache(built)
    return built.eval()


@pytest.mark.parametrize("choices", CHOICES, ids=str)
def test_the_masks_come_back(choices):
    trained, loaded = model(**choices), model(**choices)
    with torch.no_grad():
        for i, module in enumerate(masked_modules(trained).values()):
            if module.scores is not None:
                module.scores.copy_(torch.randn(module.scores.shape, generator=torch.Generator().manual_seed(i)))
    found = ledger(trained)
    packed = pack_masks(trained, found)
    assert sum(map(len, packed.values())) == sum(item.export_bytes() for item in found.with_roles("mask"))
    state = loaded.state_dict()
    for item in found.with_roles("mask"):
        state[item.name] = bits.unpack(packed[item.name], item.shape, item.bits, item.lowest).float()
    loaded.load_state_dict(state)
    for name, module in masked_modules(trained).items():
        assert masked_modules(loaded)[name].mask.equal(module.mask), name
        assert masked_modules(loaded)[name].weight.equal(module.weight)


def test_nan_scores_are_named():
    broken = model()
    broken["b"].scores.data[2, 3] = float("nan")
    with pytest.raises(InputError, match="NaN in b.scores"):
        pack_masks(broken, ledger(broken))
