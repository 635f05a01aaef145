"""fairseq-generate on a device, in float32 with padded batches, equals the CPU with single sentences."""

import pytest

from tests.gpu.test_frozen_tensors import MODELS
from tests.support.commands import train


@pytest.mark.parametrize("model", MODELS)
def test_tokens(device, same_sums, toy_data, tmp_path, run_fairseq, model):
    flags = [*MODELS[model], "--max-update", 10, "--disable-validation", "--no-epoch-checkpoints"]
    train(toy_data, *flags, "--save-dir", tmp_path)

    def hypotheses(name, *flags):
        """The three best hypotheses of each sentence as (sentence, tokens), and their scores."""
        words = ["--path", tmp_path / "checkpoint_last.pt", "--results-path", tmp_path / name, "--num-workers", 0]
        run_fairseq("generate", toy_data, *words, "--beam", 3, "--nbest", 3, "--min-len", 3, "--max-len-b", 8, *flags)
        lines = (tmp_path / name / "generate-test.txt").read_text().splitlines()
        found = sorted((line.split("\t") for line in lines if line.startswith("H-")), key=lambda said: said[0])
        return [(number, tokens) for number, _, tokens in found], [float(score) for _, score, _ in found]

    expected, scores = hypotheses("here", "--cpu", "--batch-size", 1)
    found, others = hypotheses("there", "--batch-size", 8, *(["--cpu"] if device == "cpu" else []))
    assert len(expected) == 24 and len({tokens for _, tokens in expected}) > 3
    assert found == expected and others == pytest.approx(scores, abs=1e-4)
