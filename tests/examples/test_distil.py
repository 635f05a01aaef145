"""Distilled data: the training translations are the teacher's, and nothing else is changed."""

import subprocess
from pathlib import Path

import pytest
from fairseq.data import Dictionary, data_utils

from examples.distilled import distilled
from tests.examples.test_multi30k import EXAMPLES, bash


def lines(data, part, language):
    """The sentences of a part, in pieces."""
    dictionary = Dictionary.load(str(data / f"dict.{language}.txt"))
    return [
        dictionary.string(one) for one in data_utils.load_indexed_dataset(f"{data}/{part}.en-de.{language}", dictionary)
    ]


@pytest.fixture(scope="module")
def made(of_numbers, tmp_path_factory):
    out = tmp_path_factory.mktemp("distil") / "bin"
    ended = distil(of_numbers, out)
    assert ended.returncode == 0, ended.stdout[-2000:] + ended.stderr[-2000:]
    return out


def distil(of_numbers, out, *flags, **more):
    settings = {"TEACHER": of_numbers.path, "BIN": of_numbers.data, "OUT": out, "GPUS": "0"}
    return bash(EXAMPLES / "distil.sh", *flags, **{name: str(value) for name, value in settings.items()} | more)


def test_all_but_the_training_translations_is_the_same(made, of_numbers):
    ours, theirs = ({path.name for path in Path(folder).glob("[!.]*.*")} for folder in (made, of_numbers.data))
    assert ours == theirs - {"preprocess.log"}
    changed = [name for name in sorted(ours) if (made / name).read_bytes() != (of_numbers.data / name).read_bytes()]
    assert changed == ["train.en-de.de.bin", "train.en-de.de.idx"]


def test_these_are_the_teachers(made, of_numbers):
    log = (made.parent / "bin.work" / "generate.log").read_text().splitlines()
    said = dict(line.split("\t")[::2] for line in log if line.startswith("H-"))
    found = lines(made, "train", "de")
    assert len(found) == len(lines(of_numbers.data, "train", "en")) == len(said)
    assert all(line == said[f"H-{number}"] or not said[f"H-{number}"] for number, line in enumerate(found))


def test_again_it_does_nothing(made, of_numbers):
    before = {path: path.stat().st_mtime_ns for path in made.iterdir()}
    assert distil(of_numbers, made).returncode == 0
    assert {path: path.stat().st_mtime_ns for path in made.iterdir()} == before


def test_lines():
    assert distilled("T-1\tc d\nH-1\t-0.1\t\nT-0\ta b\nH-0\t-0.2\tx y\nD-0\t-0.2\txy\n") == ["x y", "c d"]
    with pytest.raises(SystemExit, match="1 translations, not sentences 0, 1, 2"):
        distilled("H-1\t-0.1\tx\n")


@pytest.mark.parametrize(
    "setting, said",
    [
        ({"TEACHER": ""}, "TEACHER, BIN and OUT must all be set"),
        ({"TEACHER": "/no/such.pt"}, "TEACHER=/no/such.pt: no such file"),
        ({"BIN": "/no/such"}, "BIN=/no/such: it holds no train.SOURCE-TARGET.TARGET.idx"),
    ],
)
def test_refusals(setting, said, of_numbers, tmp_path):
    ended: subprocess.CompletedProcess = distil(of_numbers, tmp_path / "out", **setting)
    assert ended.returncode == 2 and said in ended.stderr and not (tmp_path / "out").exists()
