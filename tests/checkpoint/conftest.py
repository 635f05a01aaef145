"""Fixtures: a tiny trained checkpoint with every kind of layer, and one with only L and T."""

import sys
from importlib import import_module
from types import SimpleNamespace

import pytest

from tests.support.commands import USER_DIR, load, train
from tests.support.letters import WITH_RESERVOIRS
from tests.support.warm_start import run_command

PLANS = {"every_kind": tuple(WITH_RESERVOIRS.values()), "of_l_and_t": ("LT", "TL")}


def _trained(name, toy_data, tmp_path_factory, *flags):
    folder, (encoder, decoder) = tmp_path_factory.mktemp(name), PLANS[name]
    plans = ["--reservoir-encoder", encoder, "--reservoir-decoder", decoder]
    once = ["--max-update", 20, "--no-epoch-checkpoints", "--disable-validation"]
    train(toy_data, *plans, *once, *flags, "--save-dir", folder)
    path = folder / "checkpoint_last.pt"
    return SimpleNamespace(path=path, tensors=load(folder)["model"], state=load(folder))


@pytest.fixture(scope="session")
def every_kind(toy_data, tmp_path_factory):
    """``path``, ``tensors`` and ``state`` of a checkpoint with a layer of every kind."""
    return _trained("every_kind", toy_data, tmp_path_factory)


@pytest.fixture(scope="session")
def of_l_and_t(toy_data, tmp_path_factory):
    """A checkpoint with only L and T, and tied embeddings."""
    return _trained("of_l_and_t", toy_data, tmp_path_factory, "--share-decoder-input-output-embed")


@pytest.fixture
def translate(monkeypatch, toy_data, tmp_path):
    """Return a function that runs fairseq-generate with a checkpoint and returns its hypotheses with their scores."""

    def run(path, *words):
        results = tmp_path / "results"
        arguments = [str(toy_data), "--path", str(path), "--results-path", str(results)]
        arguments += ["--cpu", "--beam", "3", "--max-len-b", "10", "--num-workers", "0"]
        monkeypatch.setattr(sys, "argv", ["fairseq-generate", *arguments, *words, "--user-dir", USER_DIR])
        import_module("fairseq_cli.generate").cli_main()
        lines = (results / "generate-test.txt").read_text().splitlines()
        return sorted(line for line in lines if line.startswith(("H-", "P-")))

    return run


@pytest.fixture
def compare_with_plain_fairseq(translate, toy_data, tmp_path):
    """Return a function that asserts that fairseq without the plugin translates with ``plain`` as we do with ``checkpoint``."""

    def compare(plain, checkpoint):
        flags = "--cpu --beam 3 --max-len-b 10 --required-batch-size-multiple 1".split()
        files = ["--path", plain, "--results-path", tmp_path / "plain"]
        done = run_command("fairseq-generate", toy_data, *files, *flags, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        lines = (tmp_path / "plain" / "generate-test.txt").read_text().splitlines()
        theirs, ours = sorted(line for line in lines if line.startswith("H-")), translate(checkpoint, *flags[-2:])
        for one, other in zip(theirs, (line for line in ours if line.startswith("H-")), strict=True):
            (name, score, words), (same_name, same_score, same_words) = one.split("\t"), other.split("\t")
            # fairseq adds biases of 0 within the product, our model has no biases
            assert (name, words, float(score)) == (same_name, same_words, pytest.approx(float(same_score), abs=1e-5))

    return compare
