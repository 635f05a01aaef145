"""Checkpoints of multilingual models with frozen tensors can be loaded."""

import pytest

from tests.support.commands import RUN, train

PAIRS = "--task multilingual_translation --lang-pairs en-de".split()
SIZES = (
    "--arch frozen_multilingual_transformer --freeze ffn --encoder-layers 1 --decoder-layers 1 --encoder-embed-dim 16"
    " --decoder-embed-dim 16 --encoder-attention-heads 2 --decoder-attention-heads 2 --batch-size 32"
).split()


def test_resuming_and_translating(toy_data, run_fairseq, tmp_path):
    flags = [*RUN, *PAIRS, *SIZES, "--dropout", "0", "--disable-validation"]
    whole = train(toy_data, "--max-update", 4, "--no-save", begin=flags)
    train(toy_data, "--max-update", 2, "--save-dir", tmp_path / "ck", begin=flags)
    resumed = train(toy_data, "--max-update", 4, "--save-dir", tmp_path / "ck", begin=flags)
    assert len(resumed.losses) == 2 and resumed.losses == pytest.approx(whole.losses[2:])
    frozen = [name for name in resumed.weights if name.endswith("fc1.weight")]
    assert len(frozen) == 2 and all(resumed.weights[name].equal(whole.initial[name]) for name in frozen)
    out = ["--path", tmp_path / "ck" / "checkpoint_last.pt", "--beam", 1, "--cpu", "--results-path", tmp_path]
    run_fairseq("generate", toy_data, *PAIRS, "--source-lang", "en", "--target-lang", "de", *out)
    lines = open(tmp_path / "generate-test.txt").read().splitlines()
    assert sum(line.startswith("H-") for line in lines) == 8
