"""A device selects exactly the masks of a sort on the CPU, including ties, NaN and infinity."""

import math

import pytest
import torch

from fairseq_reservoir.masks.selection import select_largest
from tests.support.masks_by_sorting import by_sorting


def scores(kind):
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(4, 3000, generator=generator)
    if kind == "ties":
        x = (2 * x).round()
    if kind == "not numbers":
        x[:, 5:9], x[1, 2], x[2, 3] = math.nan, math.inf, -math.inf
    return x


@pytest.mark.parametrize("kind", ["numbers", "ties", "not numbers"])
@pytest.mark.parametrize("magnitude", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_selection(device, kind, magnitude, dtype):
    x, counts = scores(kind).to(dtype), [1, 1500, 2999]
    keys = torch.nan_to_num(x.float(), nan=math.inf, posinf=math.inf, neginf=-math.inf)
    keys = keys.abs() if magnitude else keys
    expected = sum(by_sorting(keys, count).to(torch.int8) for count in counts)
    found = select_largest([x.to(device), -x.to(device)] if magnitude else [x.to(device)], counts, magnitude)
    assert all(mask.device.type == device and mask.cpu().equal(expected) for mask in found)


def test_ten_million_scores(device):
    """As many scores as an embedding has, with few distinct values, so that the threshold is among thousands of equal scores."""
    x = torch.randint(1000, (1, 10**7 if device == "cuda" else 10**6), generator=torch.Generator().manual_seed(1))
    x = x.float()
    (mask,) = select_largest([x.to(device)], [x.numel() // 3])
    assert mask.cpu().equal(by_sorting(x, x.numel() // 3))
