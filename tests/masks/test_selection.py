"""Mask selection: against a sort, counts, ties, NaN, scopes, coats, signs."""

from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings, strategies as st

from fairseq_reservoir.masks import selection
from fairseq_reservoir.masks.selection import select_largest, select_masks
from fairseq_reservoir.plan.mask_choices import MaskChoices, keep_count
from tests.support.masks_by_sorting import by_sorting, expected_entries, expected_masks_together

KEEPS = [0.1, 0.3, 0.5, 0.7, 0.9]


def mask_of(scores, keep=0.5, coats=(), **choices):
    """Mask of one tensor, or of several together, in the dtype of the scores."""
    choices, tensors = MaskChoices(keep, coats, **choices), [scores] if isinstance(scores, torch.Tensor) else scores
    masks = [mask.to(s.dtype) for mask, s in zip(select_masks(tensors, choices, choices.keep_ratios), tensors)]
    return masks[0] if isinstance(scores, torch.Tensor) else masks


def draw(kind, n):
    generator = torch.Generator().manual_seed(n)
    x = torch.rand(n, generator=generator) * 2 - 1
    return {
        "distinct": x,
        "ties": (x * 5).round(),
        "two values": x.sign(),
        "constant": torch.full((n,), -0.25),
        "zeros of both signs": torch.where(x < 0, -0.0, 0.0),
        "rising": torch.arange(n) / n,
        "fp16": x.half(),
        "bf16": x.bfloat16(),
        "infinite": torch.where(x > 0.5, torch.inf, x),
    }[kind]


KINDS = ["distinct", "ties", "two values", "constant", "zeros of both signs", "rising", "fp16", "bf16", "infinite"]


@pytest.mark.parametrize("n", [1, 2, 3, 10, 255, 4096, 16385, 65536])
@pytest.mark.parametrize("kind", KINDS)
def test_mask_equals_a_sort(kind, n):
    scores = draw(kind, n)
    for keep in KEEPS:
        count = keep_count(keep, n)
        for ranking, keys in (("magnitude", scores.abs()), ("value", scores)):
            mask = mask_of(scores, keep, ranking=ranking)
            assert mask.sum(dtype=torch.float64) == count
            assert torch.equal(mask.bool(), by_sorting(keys, count))


@pytest.mark.parametrize("ranking", ["magnitude", "value"])
@pytest.mark.parametrize("kind", ["distinct", "ties", "constant", "fp16"])
def test_mask_of_a_million_scores_equals_a_sort(kind, ranking):
    scores = draw(kind, 10**6)
    order = torch.sort(scores.abs() if ranking == "magnitude" else scores, descending=True, stable=True).indices
    for keep in KEEPS:
        expected = torch.zeros(10**6, dtype=torch.bool)
        expected[order[: keep_count(keep, 10**6)]] = True
        assert torch.equal(mask_of(scores, keep, ranking=ranking).bool(), expected)


@given(st.lists(st.integers(-4, 4), min_size=1, max_size=40), st.integers(0, 40), st.booleans())
def test_both_selections_equal_a_sort(values, count, magnitude):
    x, count = torch.tensor(values, dtype=torch.float32), min(count, len(values))
    keys = x.abs() if magnitude else x
    expected = by_sorting(keys, count)[None]
    assert torch.equal(select_largest([x[None]], [count], magnitude)[0], expected)
    assert torch.equal(selection._select_on_device(keys[None], count), expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("magnitude", [True, False])
def test_a_device_selects_the_masks_of_the_cpu_and_keeps_the_scores(kind, magnitude):
    """Several tensors and counts, above and below one half. Only a copy is overwritten."""
    rows = [torch.nn.Parameter(x) for x in draw(kind, 1200).reshape(3, 4, 100)]
    before, counts = [row.detach().clone() for row in rows], [100, 81, 50, 19, 1, 0]
    found = selection._together_on_device(rows, counts, magnitude)
    assert all(torch.equal(a, b) for a, b in zip(found, select_largest(rows, counts, magnitude)))
    assert all(row.detach().equal(was) for row, was in zip(rows, before))
    assert not any(mask.requires_grad for mask in found)


def test_a_sample_that_misses_costs_no_exactness():
    # The sample has every fifth entry of 20,480. Here all of its entries are among the smallest.
    x = torch.rand(20_480, generator=torch.Generator().manual_seed(1)) + 1
    x[::5] = 0
    assert torch.equal(mask_of(x, 0.5).bool(), by_sorting(x, 10_240))


def test_selection_on_a_device_waits_for_nothing():
    # Meta tensors have no data: operations that read a value, or that have sizes which depend on values, fail.
    rows = [torch.empty(2, 10, device="meta") for _ in range(3)]
    masks = select_largest(rows, [5, 2])
    assert [m.shape for m in masks] == [(2, 10)] * 3 and masks[0].dtype == torch.int8


# floor(keep * n + 1/2), by hand: 0.15 * 10 + 0.5 = 2 exactly, although 0.15 in binary lies below 15/100;
# 0.5 * 5 + 0.5 = 3; 0.1 * 4 + 0.5 = 0.9 -> 0 -> at least 1; 0.7 * 45 + 0.5 = 32, although 0.7 * 45 in floats is below 31.5.
@pytest.mark.parametrize(
    "keep, n, count", [(0.15, 10, 2), (0.5, 5, 3), (0.1, 4, 1), (0.7, 45, 32), (1, 7, 7), ("1/3", 9, 3)]
)
def test_keep_count(keep, n, count):
    assert keep_count(keep, n) == count == keep_count(Fraction(str(keep)), n)


@pytest.mark.parametrize("keep", [0, -0.1, 1.01, float("nan"), float("inf"), "half"])
def test_ratio_outside_its_range(keep):
    with pytest.raises(ValueError, match=r"^keep ratio .*: must be a number greater than 0 and at most 1$"):
        mask_of(torch.ones(3), keep)


@pytest.mark.parametrize("keep, coat", [(0.5, 0.5), (0.1, 0.3)])
def test_coats_must_descend(keep, coat):
    with pytest.raises(ValueError, match="each ratio must be smaller than"):
        mask_of(torch.ones(3), keep, (coat,))


@pytest.mark.parametrize("choice", [{"scope": "column"}, {"ranking": "sign"}, {"kind": "signed", "ranking": "value"}])
def test_unknown_choices(choice):
    with pytest.raises(ValueError, match=next(iter(choice))):
        mask_of(torch.ones(3), 0.5, **choice)


def test_nan_ranks_as_infinite_and_keeps_the_count():
    nan = torch.nan
    x = torch.tensor([1.0, nan, -3.0, torch.inf, 2.0])
    assert mask_of(x, 0.4).tolist() == [0, 1, 0, 1, 0]
    assert mask_of(x, 0.6).tolist() == [0, 1, 1, 1, 0]
    assert mask_of(x, 0.6, ranking="value").tolist() == [0, 1, 0, 1, 1]
    assert mask_of(torch.full((5,), nan), 0.4).tolist() == [1, 1, 0, 0, 0]
    assert x[1].isnan()
    long = torch.where(draw("distinct", 20_000) > 0.9, nan, draw("distinct", 20_000))
    assert mask_of(long, 0.5).sum() == 10_000


def test_scope_row_keeps_the_count_in_every_row():
    x = draw("distinct", 600).reshape(20, 30)
    mask = mask_of(x, 0.3, scope="row")
    assert torch.equal(mask.bool(), torch.stack([by_sorting(row.abs(), 9) for row in x]))


def test_scope_global_ranks_all_tensors_together():
    # Six scores, keep 0.5: the three largest are 9 and 8 of the second tensor and 5 of the first.
    first, second = torch.tensor([5.0, 1.0, 2.0]), torch.tensor([[9.0], [-8.0], [3.0]])
    masks = mask_of([first, second], 0.5, scope="global")
    assert [m.tolist() for m in masks] == [[1, 0, 0], [[1], [1], [0]]]


def test_scope_global_leaves_each_tensor_a_tenth_of_its_share():
    # 20 of 40 scores are kept. The second tensor has the 20 smallest. Its share is 10, a tenth of which is 1: its largest score, the first.
    high, low = torch.arange(21.0, 41), -torch.arange(20.0, 0, -1)
    first, second = mask_of([high, low], 0.5, scope="global")
    assert first.tolist() == [0] + [1] * 19 and second.tolist() == [1] + [0] * 19
    # By value, the largest score of the second tensor is its last.
    assert mask_of([high, low], 0.5, scope="global", ranking="value")[1].tolist() == [0] * 19 + [1]
    # Signed coats of 0.5 and 0.25: the second coat keeps 10. Half of a share is rounded down to 0.
    first, second = mask_of([high, low], 0.5, (0.25,), scope="global", kind="signed")
    assert first.tolist() == [0] + [1] * 9 + [2] * 10 and second.tolist() == [-1] + [0] * 19


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 30), st.sampled_from([0.01, 1, 100])), min_size=1, max_size=4),
    st.sampled_from(KEEPS),
    st.integers(0, 10**6),
)
def test_scope_global_equals_sorting(tensors, keep, seed):
    generator = torch.Generator().manual_seed(seed)
    scores = [torch.randn(n, generator=generator) * size for n, size in tensors]
    for mask, expected in zip(mask_of(scores, keep, scope="global"), expected_masks_together(scores, keep)):
        assert torch.equal(mask.bool(), expected)


def test_a_list_is_selected_tensor_by_tensor():
    tensors = [draw("distinct", n).reshape(10, 10)[:, :5] for n in (100, 100)] + [draw("ties", 50).reshape(10, 5)]
    for mask, x in zip(mask_of(tensors, 0.3), tensors):
        assert torch.equal(mask, mask_of(x, 0.3))


def test_coats_are_nested():
    # n = 10, scores 1 .. 10: 0.5 keeps 6 .. 10, 0.3 adds one at 8 .. 10, 0.1 one at 10.
    assert mask_of(torch.arange(1.0, 11), 0.5, (0.3, 0.1)).tolist() == [0, 0, 0, 0, 0, 1, 1, 2, 2, 3]


def test_signed_masks():
    x = torch.tensor([-3.0, 2.0, -1.0, 0.0, -0.5])
    assert mask_of(x, 0.6, kind="signed").tolist() == [-1, 1, -1, 0, 0]
    assert mask_of(x, 0.8, (0.2,), kind="signed").tolist() == [-2, 1, -1, 0, -1]
    assert mask_of(torch.zeros(4), 0.5, kind="signed").tolist() == [1, 1, 0, 0]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(-4, 4), min_size=1, max_size=40),
    st.sampled_from(["magnitude", "value"]),
    st.booleans(),
    st.booleans(),
)
def test_coats_and_signs_equal_their_definition(values, ranking, signed, coats):
    signed, further = signed and ranking == "magnitude", (0.3, 0.1) if coats else ()
    scores, kind = torch.tensor(values, dtype=torch.float32), "signed" if signed else "binary"
    mask = mask_of(scores, 0.6, further, ranking=ranking, kind=kind)
    assert torch.equal(mask, expected_entries(scores, (0.6, *further), ranking, signed))


def test_pinned_entries_count_towards_the_ratio():
    # 4 of 10 entries are pinned and have no scores. The coats keep 2 and 1 of them, so 5 - 2 and 2 - 1 scores are kept.
    choices = MaskChoices(0.5, coats=(0.2,))
    (mask,) = select_masks([torch.arange(6.0)], choices, choices.keep_ratios, size=10, pinned=(2, 1))
    assert mask.tolist() == [0, 0, 0, 1, 1, 2]
    (mask,) = select_masks([torch.arange(6.0)], choices, choices.keep_ratios, size=10, pinned=(6, 6))
    assert not mask.any()


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 30_000), st.sampled_from(KEEPS), st.integers(0, 10**6))
def test_any_size_equals_a_sort(n, keep, seed):
    x = torch.randn(n, generator=torch.Generator().manual_seed(seed))
    assert torch.equal(mask_of(x, keep).bool(), by_sorting(x.abs(), keep_count(keep, n)))
