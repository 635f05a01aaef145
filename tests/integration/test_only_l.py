"""A plan of only L is fairseq's own transformer, bit for bit."""

import pytest
import torch

from fairseq_reservoir.freezing.description import BUFFER
from tests.support.commands import train

NORMS = {
    "post-norm": [],
    "pre-norm": ["--encoder-normalize-before", "--decoder-normalize-before"],
}
EMBEDDINGS = {
    "untied": [],
    "tied": ["--share-all-embeddings"],
}


def assert_same_bits(ours, fairseqs):
    ours = {name: tensor for name, tensor in ours.items() if name != BUFFER}
    assert list(ours) == list(fairseqs)
    assert all(torch.equal(ours[name], fairseqs[name]) for name in ours)


def norms_and_embeddings():
    """All pairs. By default each place of the LayerNorms and each kind of embeddings once."""
    for norm in NORMS:
        for embeddings in EMBEDDINGS:
            usual = (norm, embeddings) in {("pre-norm", "tied"), ("post-norm", "untied")}
            yield pytest.param(norm, embeddings, marks=[] if usual else [pytest.mark.slow])


@pytest.mark.parametrize("norm, embeddings", norms_and_embeddings())
def test_equals_fairseqs_transformer(toy_data, norm, embeddings):
    flags = [*NORMS[norm], *EMBEDDINGS[embeddings], "--encoder-layers", 2, "--decoder-layers", 2, "--max-update", 8]
    flags += ["--dropout", 0.3, "--attention-dropout", 0.1, "--activation-dropout", 0.1]
    flags += ["--no-save", "--disable-validation"]
    fairseqs = train(toy_data, *flags, "--arch", "transformer")
    ours = train(toy_data, *flags, "--reservoir-encoder", "LL", "--reservoir-decoder", "2L")
    assert type(ours.model).__name__ == "ReservoirTransformer" and type(fairseqs.model).__name__ == "TransformerModel"
    assert_same_bits(ours.initial, fairseqs.initial)
    assert len(ours.losses) == 8 and ours.losses == fairseqs.losses
    assert_same_bits(ours.weights, fairseqs.weights)
    assert not torch.equal(ours.weights["encoder.layers.0.fc1.weight"], ours.initial["encoder.layers.0.fc1.weight"])
