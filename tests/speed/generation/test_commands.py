"""``--cuda-graphs`` of fairseq-generate, with steps that run on a CPU."""

import logging

import pytest

from fairseq_reservoir.options.command_options import GENERATION_GRAPHS, ON_CPU
from tests.support.commands import train

_NOTE = "--cuda-graphs: has no effect on the device cpu"


@pytest.fixture(scope="module")
def trained(toy_data, tmp_path_factory):
    """Checkpoint of a small model after a few updates."""
    folder = tmp_path_factory.mktemp("trained")
    small = "--encoder-layers 1 --decoder-layers 1 --max-update 30 --disable-validation --no-epoch-checkpoints".split()
    train(toy_data, *small, "--save-dir", folder)
    return folder / "checkpoint_last.pt"


@pytest.fixture
def translate(toy_data, trained, run_fairseq, tmp_path):
    """Return a function that runs fairseq-generate with flags, and returns the lines of its output and of scores."""

    def run(name, *flags):
        words = [
            "--path",
            trained,
            "--results-path",
            tmp_path / name,
            "--num-workers",
            0,
            "--cpu",
            "--beam",
            3,
            "--nbest",
            2,
        ]
        run_fairseq("generate", toy_data, *words, "--gen-subset", "test", "--batch-size", 3, "--min-len", 3, *flags)
        lines = (tmp_path / name / "generate-test.txt").read_text().splitlines()
        return [line.split("\t") for line in lines if line[:2] in ("S-", "T-", "H-", "P-")]

    return run


def assert_same(found, expected):
    assert len(found) == len(expected) > 0
    for mine, theirs in zip(found, expected, strict=True):
        if mine[0].startswith("P-"):
            numbers = [[float(number) for number in row[1].split()] for row in (mine, theirs)]
            assert numbers[0] == pytest.approx(numbers[1], abs=2e-4)
        elif mine[0].startswith("H-"):
            assert (mine[0], mine[2]) == (theirs[0], theirs[2])
            assert float(mine[1]) == pytest.approx(float(theirs[1]), abs=1e-5)
        else:
            assert mine == theirs


def test_same_output(translate, monkeypatch, caplog):
    expected = translate("fairseq")
    monkeypatch.setenv(GENERATION_GRAPHS, ON_CPU)
    assert_same(translate("graphs"), expected)
    assert len({row[2] for row in expected if row[0].startswith("H-")}) >= 2
    assert "--cuda-graphs" not in caplog.text


def test_on_a_cpu(translate, monkeypatch, caplog):
    monkeypatch.delenv(GENERATION_GRAPHS, raising=False)
    expected = translate("fairseq")
    caplog.set_level(logging.INFO, "fairseq_reservoir")
    assert_same(translate("flag", "--cuda-graphs"), expected)
    assert [record.getMessage() for record in caplog.records if "--cuda-graphs" in record.getMessage()] == [_NOTE]


@pytest.mark.parametrize(
    "flags, reason",
    [
        (["--print-alignment", "hard"], "the generator is SequenceGeneratorWithAlignment"),
        (["--no-repeat-ngram-size", 2], "--no-repeat-ngram-size"),
        (["--prefix-size", 1], "--prefix-size"),
    ],
)
def test_fallback(translate, monkeypatch, caplog, flags, reason):
    expected = translate("fairseq", *flags)
    monkeypatch.setenv(GENERATION_GRAPHS, ON_CPU)
    caplog.set_level(logging.INFO, "fairseq_reservoir")
    assert_same(translate("graphs", *flags), expected)
    notes = [record.getMessage() for record in caplog.records if "--cuda-graphs" in record.getMessage()]
    assert notes == [f"--cuda-graphs: fairseq's own search is used: {reason}"]
