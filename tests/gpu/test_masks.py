"""A device selects exactly the masks of a sort on the CPU, including ties, NaN and infinity."""

import math

import pytest
import torch

from fairseq_reservoir.masks import radix_selection
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


needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU on this machine")
SIZES = [
    (6, 512 * 512),
    (2, 1024 * 4096),
    (1, 10**7),
    (3, 99_999),
    (7, 16_385),
    (2000, 512),
    (301, 1000),
    (9, 16_384),
    (5000, 7),
]


def many_scores(kind, rows, n):
    """Scores on the CPU. ``few`` has many ties, infinity and NaN of both signs, and zeros of both signs."""
    generator = torch.Generator().manual_seed(n)
    if kind == "equal":
        return torch.full((rows, n), -0.25)
    if kind == "normal":
        return torch.randn(rows, n, generator=generator)
    if kind == "uniform":
        return torch.rand(rows, n, generator=generator) / 16 - 1 / 32
    few = torch.tensor([0.0, -0.0, 1.0, -1.0, 2.0, -2.0, 1e-45, -1e-45, math.inf, -math.inf, math.nan, -math.nan])
    return few[torch.randint(len(few), (rows, n), generator=generator)]


@needs_gpu
@pytest.mark.parametrize("rows, n", SIZES)
@pytest.mark.parametrize("kind", ["normal", "uniform", "equal", "few"])
def test_a_gpu_selects_the_masks_of_the_cpu(rows, n, kind):
    x = many_scores(kind, rows, n)
    on_device, counts = x.cuda(), [n // 2, n // 10 + 1]
    for magnitude in (True, False):
        for some in (counts[:1], counts):
            (found,) = select_largest([on_device], some, magnitude)
            assert found.cpu().equal(select_largest([x], some, magnitude)[0])
    assert on_device.cpu().view(torch.int32).equal(x.view(torch.int32))


@needs_gpu
def test_a_gpu_with_triton_uses_the_radix_select():
    pytest.importorskip("triton", reason="triton is not installed")
    x = torch.randn(2, 20_000, device="cuda")
    select_largest([x], [10_000])
    assert radix_selection.is_usable(x)


@needs_gpu
@pytest.mark.parametrize("rows, n", [(4, 512 * 512), (64, 1000)])
def test_a_cuda_graph_contains_the_selection(rows, n):
    """New scores in the same tensors: a replay gives the masks of the CPU. The first call compiles the kernels."""
    scores = [torch.randn(rows, n, device="cuda") for _ in range(3)]
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        select_largest(scores, [n // 2, n // 3])
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=stream):
            masks = select_largest(scores, [n // 2, n // 3])
    for kind in ("normal", "few", "equal", "normal"):
        expected = []
        for place, x in enumerate(scores):
            new = many_scores(kind, rows, n) * (place + 1)
            x.copy_(new)
            expected += select_largest([new], [n // 2, n // 3])
        torch.cuda.synchronize()
        graph.replay()
        torch.cuda.synchronize()
        assert all(mask.cpu().equal(wanted) for mask, wanted in zip(masks, expected))


@needs_gpu
@pytest.mark.parametrize("rows, n", [(4, 512 * 512), (64, 1000)])
def test_a_selection_waits_for_nothing(rows, n):
    scores = [torch.randn(rows, n, device="cuda") for _ in range(3)]
    select_largest(scores, [n // 2])
    torch.cuda.set_sync_debug_mode("error")
    try:
        select_largest(scores, [n // 2, n // 3, n, 0], magnitude=False)
    finally:
        torch.cuda.set_sync_debug_mode("default")
