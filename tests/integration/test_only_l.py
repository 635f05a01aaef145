"""A plan of only L is fairseq's own transformer, bit for bit."""

import os

import pytest
import torch

from fairseq_reservoir.fairseq_repairs.repair import WITHOUT
from fairseq_reservoir.freezing.description import BUFFER
from tests.support.commands import USER_DIR, load, train
from tests.support.warm_start import run_command

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


def test_whole_epochs_equal_those_of_stock_fairseq(toy_data, tmp_path):
    """In processes: fairseq-train without the plugin, and with it but without the repair that trains on an epoch's last batch."""
    shape = "--encoder-embed-dim 16 --encoder-ffn-embed-dim 24 --encoder-attention-heads 2 --decoder-attention-heads 2"
    flags = (
        f"{shape} --encoder-layers 2 --decoder-layers 2 --max-tokens 150 --max-epoch 2 --dropout 0.1 --update-freq 2"
    )
    recipe = "--optimizer adam --lr 1e-3 --no-epoch-checkpoints --cpu --num-workers 0"
    words = [str(toy_data), *flags.split(), *recipe.split()]
    plugin = [
        "--user-dir",
        USER_DIR,
        "--arch",
        "reservoir_transformer",
        "--reservoir-encoder",
        "LL",
        "--reservoir-decoder",
        "LL",
    ]
    states = []
    for name, more, environment in (
        ("stock", ["--arch", "transformer"], {}),
        ("ours", plugin, {WITHOUT: "last-batch"}),
    ):
        ended = run_command("fairseq-train", *words, *more, "--save-dir", tmp_path / name, env=os.environ | environment)
        assert ended.returncode == 0, ended.stderr
        states.append(load(tmp_path / name))
    stock, ours = states
    assert_same_bits(ours["model"], stock["model"])
    assert ours["optimizer_history"][-1]["num_updates"] == stock["optimizer_history"][-1]["num_updates"] > 4
