"""Distilled data has the teacher's translations of the training set, and no other changes."""

import shutil
from pathlib import Path

import pytest
import torch
from fairseq.data import Dictionary, data_utils
from omegaconf import OmegaConf

from examples.distilled import distilled
from fairseq_reservoir.checkpoint.meta_checkpoint import read_state
from tests.examples.test_multi30k import EXAMPLES, bash

QUICKLY = ["--beam", "1"]


def lines(data, part, language):
    """Sentences of a split, in pieces."""
    dictionary = Dictionary.load(str(data / f"dict.{language}.txt"))
    return [
        dictionary.string(one) for one in data_utils.load_indexed_dataset(f"{data}/{part}.en-de.{language}", dictionary)
    ]


@pytest.fixture(scope="module")
def made(of_numbers, tmp_path_factory):
    out = tmp_path_factory.mktemp("distil") / "bin"
    ended = distil(of_numbers, out, *QUICKLY)
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


@pytest.mark.slow
def test_another_corpus_in_the_same_folder_is_translated_again(made, of_numbers, tmp_path):
    """An earlier version paired the old translations with the new sentences."""
    shutil.copytree(of_numbers.data, tmp_path / "bin")
    model = of_numbers.path
    settings = {"TEACHER": model, "BIN": tmp_path / "bin", "OUT": tmp_path / "out", "GPUS": "0"}
    settings = {name: str(value) for name, value in settings.items()}
    assert bash(EXAMPLES / "distil.sh", **settings).returncode == 0
    before = (tmp_path / "out.work" / "generate.log").read_text()
    for kind in ("bin", "idx"):
        for language in ("en", "de"):
            shutil.copy(
                tmp_path / "bin" / f"test.en-de.{language}.{kind}", tmp_path / "bin" / f"train.en-de.{language}.{kind}"
            )
    assert bash(EXAMPLES / "distil.sh", **settings).returncode == 0
    after = (tmp_path / "out.work" / "generate.log").read_text()
    assert before != after and lines(tmp_path / "out", "train", "en") == lines(tmp_path / "bin", "test", "en")


def test_again_it_does_nothing(made, of_numbers):
    def times():
        return {
            path: path.stat().st_mtime_ns for folder in (made, made.parent / "bin.work") for path in folder.rglob("*")
        }

    before = times()
    assert distil(of_numbers, made, *QUICKLY).returncode == 0 and times() == before


def test_lines():
    log = "T-1\tc d\nH-1\t-0.1\t\nT-0\ta b\nH-0\t-0.2\tx y\nD-0\t-0.2\txy\n"
    assert distilled(log, 2) == ["x y", "c d"]
    for size in (1, 3):
        with pytest.raises(SystemExit, match=f"2 translations, not each of the {size} sentences once"):
            distilled(log, size)


@pytest.mark.slow
def test_of_several_pairs_the_teachers(made, of_numbers, tmp_path):
    """A corpus of two language pairs, one with the reverse name."""
    both, teacher = tmp_path / "both", tmp_path / "teacher.pt"
    shutil.copytree(of_numbers.data, both)
    for path in of_numbers.data.glob("*.en-de.*"):
        (both / path.name.replace(".en-de.", ".en-fr.").replace(".de.", ".fr.")).write_bytes(path.read_bytes())
    silent = distil(of_numbers, tmp_path / "out", BIN=str(both), DRY_RUN="1")
    assert silent.returncode == 2 and "holds en-de and en-fr, and the teacher does not record" in silent.stderr
    state = read_state(str(of_numbers.path))
    state["cfg"].task.source_lang, state["cfg"].task.target_lang = "en", "de"
    state["cfg"] = OmegaConf.to_container(state["cfg"])
    torch.save(state, teacher)
    dry = distil(of_numbers, tmp_path / "out", BIN=str(both), DRY_RUN="1", TEACHER=str(teacher))
    assert dry.returncode == 0 and "--target-lang de" in dry.stdout and "en-fr" not in dry.stdout
    for path in both.glob("*.en-de.*"):
        path.rename(path.with_name(path.name.replace(".en-de.", ".de-en.")))
    dry = distil(of_numbers, tmp_path / "out", BIN=str(both), DRY_RUN="1", TEACHER=str(teacher))
    assert "--source-lang en --target-lang de" in dry.stdout and "train.de-en.de.idx" in dry.stdout


@pytest.mark.slow
def test_on_two_gpus_one_process_translates_all(of_numbers, tmp_path):
    dry = distil(of_numbers, tmp_path / "out", GPUS="2", DRY_RUN="1")
    assert dry.returncode == 0 and "world-size" not in dry.stdout and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "setting, said",
    [
        ({"TEACHER": ""}, "TEACHER, BIN and OUT must all be set"),
        ({"TEACHER": "/no/such.pt"}, "TEACHER=/no/such.pt: no such file"),
        ({"BIN": "/no/such"}, "BIN=/no/such: train."),
        ({"MINI": "1"}, "MINI=1: not supported"),
    ],
)
def test_refusals(setting, said, of_numbers, tmp_path):
    ended = distil(of_numbers, tmp_path / "out", **setting)
    assert ended.returncode == 2 and said in ended.stderr and not list(tmp_path.iterdir())


@pytest.mark.parametrize("flag", ["--remove-bpe=sentencepiece", "--quiet", "--gen-subset", "-t"])
def test_flags_that_would_spoil_the_corpus_are_refused(flag, of_numbers, tmp_path):
    ended = distil(of_numbers, tmp_path / "out", flag)
    assert ended.returncode == 2 and f"{flag}: not supported" in ended.stderr and not list(tmp_path.iterdir())


def test_nothing_is_written_over(of_numbers, tmp_path):
    same = distil(of_numbers, of_numbers.data)
    assert same.returncode == 2 and "is the same folder as BIN, and its references would be lost" in same.stderr
    other = tmp_path / "other"
    shutil.copytree(of_numbers.data, other)
    ended = distil(of_numbers, f"{other}/")
    assert ended.returncode == 2 and "holds a corpus that this script did not make" in ended.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["other"]
