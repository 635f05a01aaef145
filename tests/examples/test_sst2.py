"""The recipe on SST-2: its commands parse, its split does not use dev, and its table is computed."""

import gzip
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from fairseq import options

import fairseq_reservoir
from tests.support import programs
from tests.support.logs import Writer
from tests.support.scripts import run_script

FOLDER = Path(fairseq_reservoir.__file__).parents[1] / "examples" / "one_layer_supermask"


@pytest.fixture
def data(tmp_path):
    """A folder like the original SST-2: 100 training sentences, uncompressed, and 10 for dev, compressed."""
    folder = tmp_path / "raw"
    folder.mkdir()
    lines = [f"{'a fine' if n % 3 else 'an awful'} film number {n} \t{int(n % 3 > 0)}\n" for n in range(110)]
    (folder / "train.tsv").write_text("sentence\tlabel\n" + "".join(lines[:100]))
    (folder / "dev.tsv.gz").write_bytes(gzip.compress(("sentence\tlabel\n" + "".join(lines[100:])).encode()))
    return folder


def sst2(*arguments, **environment):
    variables = programs.environment(**environment)
    return subprocess.run(["bash", FOLDER / "sst2.sh", *arguments], env=variables, capture_output=True, text=True)


SPLITS = """
. "$1/examples/common.sh" sst2
. "$1/examples/classification.sh"
binarise_columns() { mkdir -p "$1"; cat "$2"/dev.input0 >"$1/made"; }  # in place of two calls of fairseq-preprocess
binarise_phrases "$RUNS/bin" "$DATA" 40 "$RUNS/pieces"
"""


def test_each_split_is_cut_from_its_own_files(data, tmp_path):
    """Two splits in the same RUNS: the second one does not reuse the files of the first."""
    lines = {}
    for split in ("sentences", "given", "sentences"):
        environment = {**os.environ, "DATA": str(data), "RUNS": str(tmp_path / "runs"), "SPLIT": split}
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        command = ["bash", "-euc", SPLITS, "bash", str(FOLDER.parents[1])]
        ended = subprocess.run(command, env=environment | {"PATH": path}, capture_output=True, text=True)
        assert ended.returncode == 0, ended.stderr
        made = (tmp_path / "runs" / "bin" / "made").read_text()
        assert lines.setdefault(split, made) == made
    assert lines["given"].count("\n") == 10 and lines["given"] != lines["sentences"]


def python(script, *arguments):
    return run_script(FOLDER / script, *arguments)


def test_dry_run_prints_commands_that_fairseq_understands(data, tmp_path):
    runs = tmp_path / "runs"
    ended = sst2("--max-update", "7", DATA=str(data), RUNS=str(runs), DRY_RUN="1")
    assert ended.returncode == 0, ended.stderr
    assert not runs.exists()
    commands = {}
    for line in ended.stdout.splitlines():
        words = shlex.split(line)
        end = next((i for i, word in enumerate(words) if word == "2>&1"), len(words))
        commands.setdefault(words[0], []).append(words[1:end])
    columns = [options.get_preprocessing_parser().parse_args(words) for words in commands["fairseq-preprocess"]]
    assert [column.destdir for column in columns] == [f"{runs}/bin.part/input0", f"{runs}/bin.part/label"]
    assert all(column.only_source and column.testpref.startswith(f"{runs}/pieces/dev.") for column in columns)
    (words,) = commands["fairseq-train"]
    train = options.parse_args_and_arch(options.get_training_parser(), words)
    assert (train.task, train.criterion, train.num_classes) == ("sentence_prediction", "sentence_prediction", 2)
    assert (train.arch, train.encoder_embed_dim, train.encoder_layers) == ("supermask_one_layer_roberta_study", 128, 3)
    assert (train.max_update, train.data) == (7, f"{runs}/bin")
    (words,) = commands["fairseq-validate"]
    validate = options.parse_args_and_arch(options.get_validation_parser(), words)
    assert (validate.valid_subset, validate.path) == ("test", f"{train.save_dir}/checkpoint_best.pt")


@pytest.mark.parametrize(
    "change, message",
    [
        ({"DATA": ""}, "DATA is not set"),
        ({"DATA": "nowhere"}, "neither nowhere/train.tsv nor nowhere/train.tsv.gz exists"),
    ],
)
def test_missing_data_is_named(change, message, tmp_path):
    ended = sst2(RUNS=str(tmp_path / "runs"), DRY_RUN="1", **change)
    assert (ended.returncode, ended.stderr.count("\n")) == (2, 1) and message in ended.stderr


def test_every_twentieth_training_sentence_is_for_validation(data, tmp_path):
    assert python("sst2_pieces.py", data, 60, tmp_path).returncode == 0
    lines = {part: (tmp_path / f"{part}.input0").read_text().splitlines() for part in ("train", "valid", "dev")}
    words = {part: ["".join(line.split()).replace("▁", " ").strip() for line in cut] for part, cut in lines.items()}
    assert words["valid"] == ["a fine film number 19", "an awful film number 39", "a fine film number 59",
                              "a fine film number 79", "an awful film number 99"]  # fmt: skip
    assert len(words["train"]) == 95 and not set(words["valid"]) & set(words["train"])
    # of 100 to 109, those not divisible by 3
    assert (tmp_path / "dev.label").read_text().split() == list("1101101101")[:10]


def test_split_by_sentence(monkeypatch):
    """The sentences are A, B and C. `a fine` occurs in A and C, `by night` only in A, `of rats` in none."""
    monkeypatch.syspath_prepend(FOLDER)
    import sst2_sentences

    A, B, C = "a fine film by night .", "an awful film .", "a fine mess ."
    given = [A, "a fine", "by night", B, "of rats", "film", C, "a fine"]
    assert sst2_sentences.containers(given) == {
        A: {A}, B: {B}, C: {C}, "a fine": {A, C}, "by night": {A}, "of rats": {"of rats"}, "film": {A, B},
    }  # fmt: skip
    monkeypatch.setattr(sst2_sentences, "part_of", {A: "dev", B: "train", C: "valid", "of rats": "train"}.get)
    parts = sst2_sentences.split([(phrase, "1") for phrase in given])
    assert {name: [phrase for phrase, _ in pairs] for name, pairs in parts.items()} == {
        "train": [B, "of rats", "film"], "dev": [A], "valid": [C],
    }  # fmt: skip


def test_only_sentences_are_held_out_and_none_of_them_is_trained_on(data, tmp_path):
    def parts(folder):
        folder.mkdir()
        assert python("sst2_sentences.py", data, folder).returncode == 0
        return {name: (folder / f"{name}.tsv").read_text().splitlines()[1:] for name in ("train", "valid", "dev")}

    assert {name: len(lines) for name, lines in parts(tmp_path / "none").items()} == {
        "train": 110,
        "valid": 0,
        "dev": 0,
    }
    (data / "train.tsv").write_text((data / "train.tsv").read_text().replace(" \t", " .\t"))
    found = parts(tmp_path / "some")  # the 100 lines of train.tsv now end with a full stop
    assert sum(map(len, found.values())) == len(set().union(*found.values())) == 110
    assert 3 <= len(found["dev"]) <= 20 and 1 <= len(found["valid"]) <= 12
    assert python("sst2_pieces.py", tmp_path / "some", 60, tmp_path).returncode == 0
    for name, lines in found.items():
        assert (tmp_path / f"{name}.label").read_text().split() == [line.split("\t")[1] for line in lines]


def test_a_line_without_a_label_is_named(data, tmp_path):
    (data / "train.tsv").write_text("sentence\tlabel\nfine\t1\nawful\n")
    assert "train.tsv line 3: must be sentence<TAB>label" in python("sst2_pieces.py", data, 60, tmp_path).stderr


def test_the_majority_is_counted(tmp_path):
    (tmp_path / "dev.label").write_text("1\n0\n1\n1\n0\n")
    Writer(tmp_path, per_epoch=50, mflop=None).start().epoch(50, 40, 100, 60).epoch(90, 44, 100, 120).write()
    (tmp_path / "validate.log").write_text('{"test_loss": "0.4", "test_accuracy": "82.5"}\n')
    # three of five, 82.5 - 60; 40 + 44 seconds
    cells = python("sst2_report.py", tmp_path / "dev.label", tmp_path).stdout.splitlines()[2].split(" | ")
    assert cells[1:] == ["1,879,680", "1,417,344", "82.5 %", "60.0 %", "+22.5", "90", "1.4 |"]


@pytest.mark.slow
def test_a_tiny_run_resumes_and_reports(data, tmp_path):
    small = "--cpu --encoder-embed-dim 8 --encoder-ffn-embed-dim 8 --encoder-attention-heads 2 --encoder-layers 1 --batch-size 20".split()
    for updates in ("5", "10"):
        ended = sst2(*small, "--max-update", updates, DATA=str(data), RUNS=str(tmp_path / "runs"), NAME="tiny")
        assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "Loaded checkpoint" in ended.stdout
    # 7 of 10 labels in dev are equal
    assert (
        "| tiny-1 |" in ended.stdout
        and "| 70.0 % |" in ended.stdout
        and ended.stdout.splitlines()[-1].split(" | ")[6] == "10"
    )
