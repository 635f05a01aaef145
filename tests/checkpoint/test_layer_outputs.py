"""Outputs of layers for probes: the same as the model's own, for every kind of layer and model."""

import functools

import numpy as np
import pytest
import torch

from fairseq_reservoir.checkpoint.layer_outputs import LEFT_OUT, MASKED, ProbedModel
from fairseq_reservoir.checkpoint.meta_checkpoint import open_checkpoint
from fairseq_reservoir.errors import InputError
from tests.support.commands import RUN, train

ONCE = ["--max-update", 2, "--no-epoch-checkpoints", "--disable-validation"]
SIZES = "--embed-dim 16 --ffn-embed-dim 24 --attention-heads 2".split()


def sizes(stack):
    return [word.replace("--", f"--{stack}-") for word in SIZES]


LM = "--task language_modeling --tokens-per-sample 16 --sample-break-mode eos".split()
ROBERTA = (
    "--task masked_lm --criterion masked_lm --tokens-per-sample 16 --sample-break-mode eos --max-positions 16".split()
)
MODELS = {
    "masks": ["--arch", "supermask_one_layer_transformer", "--encoder-layers", 2, *sizes("encoder"), *sizes("decoder")],
    "frozen": ["--arch", "frozen_transformer", "--freeze", "encoder.att", "--encoder-layers", 2, *sizes("encoder"), *sizes("decoder")],
    "lm": [*LM, "--arch", "reservoir_transformer_lm", "--reservoir-decoder", "LT", *sizes("decoder")],
    "masks_lm": [*LM, "--arch", "supermask_one_layer_transformer_lm", "--decoder-layers", 2, *sizes("decoder")],
    "roberta": [*ROBERTA, "--arch", "reservoir_roberta", "--reservoir-encoder", "LT", *sizes("encoder")],
    "pruned": ["--reservoir-encoder", "LTLT", "--encoder-layers-to-keep", "0,2", *sizes("encoder"), *sizes("decoder")],
}  # fmt: skip
STATES = {
    "masks": [MASKED, MASKED],
    "frozen": ["partly frozen", "partly frozen"],
    "lm": ["trained", "frozen"],
    "masks_lm": [MASKED, MASKED],
    "roberta": ["trained", "frozen"],
    "pruned": ["trained", LEFT_OUT, "trained", LEFT_OUT],
}


@pytest.fixture(scope="module")
def trained(toy_data, tmp_path_factory):
    """Return a function that trains a model of ``MODELS`` once and returns its checkpoint."""

    @functools.cache
    def of_name(name):
        folder = tmp_path_factory.mktemp(name)
        arch = [] if name != "pruned" else ["--arch", "reservoir_transformer"]
        train(toy_data, *arch, *MODELS[name], *ONCE, "--save-dir", folder, begin=RUN)
        return str(folder / "checkpoint_last.pt")

    return of_name


def outputs_of(model, sentences):
    return dict(model.outputs(sentences))


def test_each_layer_reads_the_output_of_the_one_below(every_kind, toy_data):
    """Hooks record the input and the output of each layer, in a batch with padding."""
    probed = ProbedModel(str(every_kind.path), str(toy_data))
    sentences = [one for one in probed.sentences("train", 999, 1) if len(one.tokens) in (3, 6)][:8]
    found = outputs_of(probed, sentences)
    assert len(found) == 8
    encoder = open_checkpoint(str(every_kind.path)).built().encoder
    seen = []
    for layer in encoder.layers:
        layer.register_forward_hook(lambda _, inputs, output: seen.append((inputs[0], output)))
    for number, one in enumerate(sentences):
        seen.clear()
        with torch.no_grad():
            encoder(torch.tensor([[*one.tokens, 2], [1] * (len(one.tokens) - 1) + [5, 2]]))
        expected = [seen[0][0], *(output for _, output in seen)]
        assert len(expected) == len(found[number]) == len(probed.depths)
        for mine, theirs in zip(found[number], expected):
            np.testing.assert_allclose(mine, theirs[: len(one.tokens), 0], atol=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_states(name, trained, toy_data):
    probed = ProbedModel(trained(name), str(toy_data))
    assert [depth.state for depth in probed.depths] == [
        STATES[name][0] if "masks" in name else "trained",
        *STATES[name],
    ]
    assert [depth.number for depth in probed.depths] == list(range(len(STATES[name]) + 1))
    sentences = probed.sentences("train", 999, 1)[:5]
    found = outputs_of(probed, sentences)
    built = 1 + sum(state != LEFT_OUT for state in STATES[name])
    assert [found[i].shape for i in range(5)] == [(built, len(one.tokens), 16) for one in sentences]
    assert all((one.copied is None) == (probed.stack == "decoder" or name == "roberta") for one in sentences)


def test_a_token_of_a_language_model_sees_itself_and_nothing_later(trained, toy_data):
    probed = ProbedModel(trained("lm"), str(toy_data))
    first = next(one for one in probed.sentences("train", 999, 1) if len(one.tokens) == 5)
    changed = first.tokens.copy()
    changed[3] = 4 + (changed[3] - 3) % 8  # another letter
    before, after = (outputs_of(probed, [type(first)(tokens, None)])[0] for tokens in (first.tokens, changed))
    assert np.array_equal(before[:, :3], after[:, :3]) and (before[:, 3] != after[:, 3]).any(axis=-1).all()


def test_sentences_have_their_target(of_l_and_t, toy_data):
    """A target is the source reversed, so it has all tokens of the source."""
    probed = ProbedModel(str(of_l_and_t.path), str(toy_data))
    found = probed.sentences("train", 999, 1)
    assert all(one.copied.all() and len(one.copied) == len(one.tokens) >= 2 for one in found)
    assert len(probed.sentences("train", 7, 1)) <= 7 and len(found) > 100
    assert {int(token) for one in found for token in one.tokens} == set(range(4, 12))


def test_another_split_is_refused(of_l_and_t, toy_data):
    with pytest.raises(InputError, match=r"--split other: DATA .* has no other.en-de.en; name a split such as"):
        ProbedModel(str(of_l_and_t.path), str(toy_data)).sentences("other", 9, 1)


def test_a_model_that_is_not_a_transformer_is_refused(toy_data, tmp_path):
    lstm = ["--arch", "lstm", "--encoder-embed-dim", 16, "--decoder-embed-dim", 16, "--encoder-hidden-size", 16]
    train(
        toy_data,
        *lstm,
        "--decoder-hidden-size",
        16,
        "--decoder-out-embed-dim",
        16,
        *ONCE,
        "--save-dir",
        tmp_path,
        begin=RUN,
    )
    with pytest.raises(
        InputError, match=r"CHECKPOINT .*: lstm has no Transformer encoder and is not a Transformer language model"
    ):
        ProbedModel(str(tmp_path / "checkpoint_last.pt"), str(toy_data))
