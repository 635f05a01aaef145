"""benchmarks/mask_selection.py: all methods select the same masks, and one run."""

import pytest
import torch
from hypothesis import given, strategies as st

from benchmarks import mask_selection, memory
from fairseq_reservoir.masks.selection import _together_on_device
from fairseq_reservoir.plan.mask_choices import keep_count
from tests.support.masks_by_sorting import by_sorting


@pytest.mark.parametrize("name", ["ours", "ours, separate", "topk", "sort", "kthvalue", "bit by bit"])
def test_the_largest_half_of_each_matrix(name):
    scores = torch.randn(3, 64, generator=torch.Generator().manual_seed(1))
    count = keep_count(0.5, 64)
    found = mask_selection.ARMS[name](scores, count)
    found = torch.cat(found) if isinstance(found, list) else found
    assert found.equal(by_sorting(scores.abs(), count))


@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=30, unique_by=abs), st.data())
def test_bit_by_bit_keeps_the_largest_of_any_sizes(values, data):
    scores, count = torch.tensor([values]), data.draw(st.integers(1, len(values)))
    found = mask_selection.bit_by_bit(scores, count)
    assert found.equal(by_sorting(scores.abs(), count))


def test_the_floor_reads_and_writes_everything():
    scores = torch.randn(3, 64)
    assert mask_selection.three_passes(scores, 32).shape == scores.shape


@pytest.mark.parametrize("keep", [0.1, 0.5, 0.9])
def test_memory_of_a_selection_on_a_device(keep):
    """Bytes per score: a key of 4, two masks, and for ranks of equal scores 4 and a third mask. ``topk`` needs less.

    Measured with CPU tensors. The operations are the same, but internal memory of a device's kernels is not counted.
    """
    scores = torch.randn(3, 4000)

    class Selection:
        def step(self):
            _together_on_device([scores], [keep_count(keep, 4000)], True)

    _, peak = memory.peak_of(Selection, 1)
    assert 11 <= peak / scores.numel() < 11.1


def test_a_run(tmp_path, capsys):
    result = mask_selection.main([*"--matrices 2 --rows 8 --pairs 2 --output".split(), str(tmp_path / "masks")])
    assert result["scores"] == 128 and [arm["arm"] for arm in result["arms"]] == list(mask_selection.ARMS)
    assert all(arm["milliseconds"] > 0 for arm in result["arms"])
    assert result["arms"][4]["peak_mib"] * 2**20 >= 2 * 64 * (4 + 8)  # scores and indices of a sort
    assert (tmp_path / "masks.md").read_text() == capsys.readouterr().out
