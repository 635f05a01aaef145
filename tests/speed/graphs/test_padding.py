"""Padding a batch to a bucket, worked out by hand. 1 is padding and 2 the end of a sentence."""

import pytest
import torch

from fairseq_reservoir.speed.graphs.padding import BUCKET, masked_places, pad, shape_of


def batch(source, target, previous=None, **more):
    inputs = {"src_tokens": torch.tensor(source), "src_lengths": torch.tensor([2] * len(source))}
    if previous:
        inputs["prev_output_tokens"] = torch.tensor(previous)
    return {"id": torch.arange(len(source)), "nsentences": len(source), "ntokens": 5, "net_input": inputs, **more} | {
        "target": torch.tensor(target)
    }


TRANSLATION = batch([[4, 5, 2], [1, 4, 2]], [[6, 2], [7, 2]], [[2, 6], [2, 7]])


def test_a_translation():
    assert shape_of(TRANSLATION) == (2, 3, 2)
    padded = pad(TRANSLATION, (3, 4, 3), padding=1, end=2)
    assert padded["net_input"]["src_tokens"].tolist() == [[1, 4, 5, 2], [1, 1, 4, 2], [1, 1, 1, 2]]
    assert padded["net_input"]["src_lengths"].tolist() == [2, 2, 1]
    assert padded["net_input"]["prev_output_tokens"].tolist() == [[2, 6, 1], [2, 7, 1], [2, 1, 1]]
    assert padded["target"].tolist() == [[6, 2, 1], [7, 2, 1], [1, 1, 1]]
    assert padded["id"].tolist() == [0, 1, -1]
    assert (padded["nsentences"], padded["ntokens"], padded[BUCKET]) == (2, 5, (3, 4, 3))
    assert TRANSLATION["target"].tolist() == [[6, 2], [7, 2]]


def test_a_source_padded_on_the_right():
    padded = pad(batch([[4, 5, 2], [4, 2, 1]], [[6, 2]] * 2, [[2, 6]] * 2), (3, 4, 2), padding=1, end=2)
    assert padded["net_input"]["src_tokens"].tolist() == [[4, 5, 2, 1], [4, 2, 1, 1], [2, 1, 1, 1]]


def test_a_language_model():
    sample = batch([[2, 4, 5], [2, 4, 1]], [[4, 5, 2], [4, 2, 1]])
    assert shape_of(sample) == (2, 3)
    padded = pad(sample, (3, 5), padding=1, end=2)
    assert padded["net_input"]["src_tokens"].tolist() == [[2, 4, 5, 1, 1], [2, 4, 1, 1, 1], [2, 1, 1, 1, 1]]
    assert padded["target"].tolist() == [[4, 5, 2, 1, 1], [4, 2, 1, 1, 1], [1, 1, 1, 1, 1]]


def test_a_batch_of_its_own_bucket_is_copied():
    padded = pad(TRANSLATION, (2, 3, 2), padding=1, end=2)
    for name, tokens in TRANSLATION["net_input"].items():
        assert padded["net_input"][name].equal(tokens)


@pytest.mark.parametrize("more", [{"constraints": torch.ones(1)}, {"target": torch.ones(2)}, {"target": None}])
def test_other_batches_have_no_shape(more):
    assert shape_of(TRANSLATION | more) is None


def test_other_inputs_and_an_empty_batch_have_no_shape():
    inputs = TRANSLATION["net_input"] | {"alignments": torch.ones(1)}
    assert shape_of(TRANSLATION | {"net_input": inputs}) is None
    assert shape_of({}) is None


def test_predicted_places():
    target = torch.tensor([[1, 8, 1, 1], [9, 1, 1, 1]])
    # 15 % of 8 positions and a reserve of 64, rounded up to a multiple of 64.
    places = masked_places(target, padding=1, share=0.15)
    assert places["count"] == 2 and places["index"].shape == places["labels"].shape == (128,)
    assert places["index"][:3].tolist() == [1, 4, 0] and places["labels"][:3].tolist() == [8, 9, 1]
    assert set(places["labels"][2:].tolist()) == {1} and not places["index"][2:].any()


def test_more_predicted_tokens_than_places():
    assert masked_places(torch.full((10, 100), 5), padding=1, share=0.15) is None
