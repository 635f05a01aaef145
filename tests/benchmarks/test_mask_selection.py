"""benchmarks/mask_selection.py: every way that selects selects the same, and one run."""

import pytest
import torch

from benchmarks import mask_selection
from fairseq_reservoir.masks.selection import keep_count
from tests.support.masks_by_sorting import by_sorting


@pytest.mark.parametrize("name", ["ours", "sort", "kthvalue"])
def test_the_largest_half_of_each_matrix(name):
    scores = torch.randn(3, 64, generator=torch.Generator().manual_seed(1))
    count = keep_count(0.5, 64)
    assert mask_selection.ARMS[name](scores, count).equal(by_sorting(scores.abs(), count))


def test_the_floor_reads_and_writes_everything():
    scores = torch.randn(3, 64)
    assert mask_selection.three_passes(scores, 32).shape == scores.shape


def test_a_run(tmp_path, capsys):
    result = mask_selection.main([*"--matrices 2 --rows 8 --pairs 2 --output".split(), str(tmp_path / "masks")])
    assert result["scores"] == 128 and [arm["arm"] for arm in result["arms"]] == list(mask_selection.ARMS)
    assert all(arm["milliseconds"] > 0 for arm in result["arms"])
    assert result["arms"][2]["peak_mib"] * 2**20 >= 2 * 64 * (4 + 8)  # a sort's scores and indices
    assert (tmp_path / "masks.md").read_text() == capsys.readouterr().out
