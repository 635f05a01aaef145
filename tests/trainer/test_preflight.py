"""Files that a run needs are checked before data is loaded and before anything is written."""

import os
import random
import shutil
import sys
from argparse import Namespace
from types import SimpleNamespace

import pytest
from fairseq import tasks
from fairseq.distributed import utils as distributed_utils

from fairseq_reservoir.errors import InputError
from fairseq_reservoir.fairseq_repairs import index_files
from fairseq_reservoir.fairseq_repairs.error_report import SEE_DATA, find_input_error
from fairseq_reservoir.trainer import data_files, preflight
from tests.support.damage import damaged


@pytest.fixture
def refusal(run_fairseq, tiny_training, tmp_path, monkeypatch):
    """Return a function that starts a training and returns its error. It checks that no task is set up and nothing is written."""

    def refuse(data, *flags, save_dir=None, training=tiny_training):
        loaded = []
        monkeypatch.setattr(tasks, "setup_task", lambda *args: loaded.append(args))
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(InputError) as caught:
            run_fairseq("train", data, *training, "--save-dir", save_dir or tmp_path / "checkpoints", *flags)
        assert loaded == [] and sorted(tmp_path.rglob("*")) == before
        assert "\n" not in str(caught.value)
        return str(caught.value)

    return refuse


def test_missing_folder(refusal, tmp_path):
    assert refusal(tmp_path / "nowhere").startswith(
        f"DATA: {tmp_path}/nowhere is not a folder; create it with fairseq-preprocess"
    )


@pytest.mark.parametrize("flags, is_refused", [((), True), (("--upsample-primary", 2), False)])
def test_a_split_of_two_files(make_corpus, refusal, run_fairseq, tiny_training, flags, is_refused):
    """fairseq's default would repeat the first file -1 times."""
    data = make_corpus()
    for file in list(data.glob("train.*")):
        shutil.copy(file, data / file.name.replace("train.", "train1.", 1))
    if is_refused:
        message = f"--upsample-primary -1: {data} has train and train1, and the training uses both; give the number of times that "
        assert refusal(data, *flags) == f"{message}train is repeated, as in --upsample-primary 1"
    else:
        run_fairseq("train", data, *tiny_training, "--max-update", 1, "--no-save", *flags)


def test_folder_without_data(refusal, tmp_path):
    (tmp_path / "data").mkdir()
    assert f"no file such as train.en-de.en.idx in {tmp_path}/data" in refusal(tmp_path / "data")


def test_missing_dictionary(refusal, make_corpus):
    data = make_corpus()
    (data / "dict.de.txt").unlink()
    assert refusal(data) == f"{data}/dict.de.txt: no such dictionary; create it with fairseq-preprocess"


@pytest.mark.parametrize(
    "name, flag",
    [
        ("train.en-de.en.idx", "--train-subset"),
        ("train.en-de.en.bin", "--train-subset"),
        ("train.en-de.de.idx", "--train-subset"),
        ("valid.en-de.en.idx", "--valid-subset"),
    ],
)
def test_missing_binarised_file(refusal, make_corpus, name, flag):
    data = make_corpus()
    (data / name).unlink()
    assert refusal(data) == f"{data}/{name}: no such binarised file ({flag}); create it with fairseq-preprocess"


def test_swapped_languages(refusal, make_corpus):
    data = make_corpus()
    (data / "train.en-de.de.bin").unlink()
    assert f"{data}/train.en-de.de.bin" in refusal(data, "-s", "de", "-t", "en", "--disable-validation")
    for file in data.glob("train.en-de.*"):
        file.unlink()
    assert f"{data}/train.de-en.de.idx" in refusal(data, "-s", "de", "-t", "en", "--disable-validation")


def test_empty_corpus(refusal, make_corpus):
    data = make_corpus(train=0)
    assert refusal(data) == f"{data}/train.en-de.en.idx: has 0 sentences; at least 1 is needed"


@pytest.mark.parametrize("split", ["train", "train1", "valid"])
def test_sides_of_different_length(refusal, make_corpus, split):
    data, other = make_corpus(train1=6), make_corpus("other", train1=4, train=4, valid=4)
    for suffix in ("idx", "bin"):
        shutil.copy(other / f"{split}.en-de.de.{suffix}", data / f"{split}.en-de.de.{suffix}")
    count = {"train": 21, "train1": 6, "valid": 5}[split]
    assert refusal(data, "--upsample-primary", "1") == (
        f"{data}/{split}.en-de.en.idx has {count} sentences and {data}/{split}.en-de.de.idx has 4;"
        " both need the same number of sentences"
    )


def test_counts_of_the_older_format(tmp_path):
    import torch
    from fairseq.data.indexed_dataset import IndexedDatasetBuilder

    builder = IndexedDatasetBuilder(str(tmp_path / "train.bin"))
    for _ in range(3):
        builder.add_item(torch.IntTensor([4, 2]))
    builder.finalize(str(tmp_path / "train.idx"))
    assert data_files.count_sentences(str(tmp_path / "train")) == 3


@pytest.mark.parametrize("task, arch", [("language_modeling", "transformer_lm"), ("masked_lm", "roberta_base")])
def test_text_of_one_language(refusal, make_corpus, task, arch):
    data = make_corpus()
    training = ["--task", task, "--arch", arch, "--batch-size", 4, "--optimizer", "adam"]
    (data / "train.bin").unlink()
    assert refusal(data, training=training).startswith(f"{data}/train.bin: no such binarised file (--train-subset)")
    (data / "dict.txt").unlink()
    assert refusal(data, training=training).startswith(f"{data}/dict.txt: no such dictionary")
    assert refusal(data / "gone", training=training).startswith(f"DATA: {data}/gone is not a folder")


def test_save_dir_that_cannot_be_written(refusal, make_corpus, tmp_path, monkeypatch):
    data = make_corpus()
    (tmp_path / "file").write_text("")
    for save_dir in (tmp_path / "file", tmp_path / "file" / "checkpoints"):
        assert refusal(data, save_dir=save_dir) == f"--save-dir: got {save_dir}, but {tmp_path}/file is not a folder"
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert refusal(data) == f"--save-dir: got {tmp_path}/checkpoints, but {tmp_path} cannot be written"


@pytest.mark.parametrize(
    "flags",
    [
        [],
        ["--disable-validation", "--valid-subset", "gone"],
        ["--dataset-impl", "mmap"],
        ["--valid-subset", "valid,test"],
        ["--combine-valid-subsets"],
    ],
)
def test_good_data_passes(make_corpus, run_fairseq, tiny_training, tmp_path, monkeypatch, flags):
    reached = []
    monkeypatch.setattr("fairseq_cli.train.main", plain_main(reached))
    run_fairseq("train", make_corpus(train1=4), *tiny_training, "--save-dir", tmp_path / "ck", *flags)
    assert reached == ["main"]


def plain_main(reached):
    """Return a stand-in for fairseq-train's main that only records that it was called."""
    return lambda cfg: reached.append("main")


def config(data, task="translation", **options):
    """Return the part of a configuration that the data checks read."""
    dataset = {
        "train_subset": "train",
        "valid_subset": "valid",
        "disable_validation": False,
        "combine_valid_subsets": False,
    }
    task_options = {"source_lang": "en", "target_lang": "de", "dataset_impl": None, "regression_target": False}
    return SimpleNamespace(
        task=SimpleNamespace(
            _name=task, data=str(data), **{name: options.get(name, value) for name, value in task_options.items()}
        ),
        dataset=SimpleNamespace(**{name: options.get(name, value) for name, value in dataset.items()}),
    )


def test_folders_of_all_epochs_are_checked_but_raw_text_is_not(make_corpus):
    first, second = make_corpus("first"), make_corpus("second")
    data_files.check_data(config(f"{first}:{second}"))
    (second / "valid.en-de.en.idx").unlink()  # only the first folder has to have validation data
    data_files.check_data(config(f"{first}:{second}"))
    (second / "train.en-de.de.bin").write_bytes(b"\4\0")
    with pytest.raises(InputError, match=f"^{second}/train.en-de.de.bin: is damaged .it has 2 bytes"):
        data_files.check_data(config(f"{first}:{second}"))
    data_files.check_data(config(f"{second}", dataset_impl="raw"))


@pytest.mark.parametrize("task", ["translation", "language_modeling"])
def test_data_of_some_epochs_may_be_missing(task, make_corpus, tmp_path):
    """A run may start before all folders exist. It may resume at any epoch, after the first folders were deleted."""
    name = "train.en-de.en" if task == "translation" else "train"
    first, second = make_corpus("first"), make_corpus("second")
    data_files.check_data(config(f"{first}:{tmp_path}/gone:{second}", task))
    (first / f"{name}.idx").unlink()
    (second / f"{name}.bin").unlink()
    data_files.check_data(config(f"{first}:{second}", task))
    with pytest.raises(InputError, match=f"{first}/{name}.idx: no such binarised file .--train-subset."):
        data_files.check_data(config(first, task))


def test_only_headers_and_lengths_of_later_folders_are_read(make_corpus, monkeypatch):
    first, second = make_corpus("first"), make_corpus("second")
    checked, read = [], []
    check_once, check_ids = index_files.check_once, index_files.check_ids
    monkeypatch.setattr(
        index_files, "check_once", lambda *args: checked.append((args[0], args[2])) or check_once(*args)
    )
    monkeypatch.setattr(index_files, "check_ids", lambda *args: read.append(args[0]) or check_ids(*args))
    data_files.check_data(config(f"{first}:{second}"))
    first_prefixes = [f"{first}/{split}.en-de.{side}" for split in ("train", "valid") for side in ("en", "de")]
    assert [prefix for prefix, every_sentence in checked if every_sentence] == read == first_prefixes
    assert [call for call in checked if not call[1]] == [
        (f"{second}/train.en-de.{side}", False) for side in ("en", "de")
    ]


# Columns: task, splits that the command reads (None for a training), file, damage to the file, pattern of the message.
DAMAGES = [
    ("translation", None, "dict.de.txt", lambda path: path.write_text("a\n"), "line 1, 'a', must be a word and its count"),
    ("translation", None, "dict.en.txt", lambda path: path.write_text("a 1\n"), "train.en-de.en.bin: token .* has id .*dict.en.txt"),
    ("translation", None, "train.en-de.de.idx", lambda path: shorten(path, 5), "train.en-de.de.idx: is damaged"),
    ("translation", None, "train1.en-de.en.bin", lambda path: shorten(path, 5), "train1.en-de.en.bin: is damaged"),
    ("translation", None, "valid.en-de.de.bin", lambda path: shorten(path, 2), "valid.en-de.de.bin: is damaged"),
    ("translation", None, "test.en-de.en.bin", lambda path: shorten(path, 2), "test.en-de.en.bin: is damaged"),
    ("translation", ["test"], "test.en-de.de.bin", lambda path: shorten(path, 2), "test.en-de.de.bin: is damaged"),
    ("translation", ["test", "test1"], "test1.en-de.en.bin", lambda path: shorten(path, 2), "test1.en-de.en.bin: is damaged"),
    ("translation", ["test"], "dict.de.txt", lambda path: path.write_text("a 1\na 1\n"), "line 2 repeats 'a'"),
    ("translation_lev", None, "train.en-de.de.idx", lambda path: shorten(path, 5), "train.en-de.de.idx: is damaged"),
    ("language_modeling", None, "train1.idx", lambda path: shorten(path, 1), "train1.idx: is damaged"),
    ("language_modeling", None, "valid.bin", lambda path: shorten(path, 1), "valid.bin: is damaged"),
    ("language_modeling", ["test"], "test.bin", lambda path: shorten(path, 1), "test.bin: is damaged"),
    ("masked_lm", None, "train.bin", lambda path: shorten(path, 1), "train.bin: is damaged"),
    ("masked_lm", None, "dict.txt", lambda path: path.write_bytes(b""), "dict.txt: an empty dictionary"),
    ("sentence_prediction", None, "input0/train.bin", lambda path: shorten(path, 1), "input0/train.bin: is damaged"),
    ("sentence_prediction", None, "label/valid.bin", lambda path: shorten(path, 1), "label/valid.bin: is damaged"),
    ("sentence_prediction", None, "label/dict.txt", lambda path: path.write_text("0\n"), "label/dict.txt: line 1"),
    ("sentence_prediction", ["valid"], "input0/valid.idx", lambda path: shorten(path, 1), "input0/valid.idx: is damaged"),
]  # fmt: skip


def shorten(path, count):
    path.write_bytes(path.read_bytes()[:-count])


@pytest.mark.parametrize("task, splits, name, damage, message", DAMAGES)
def test_damage_is_found_before_a_model_is_built(task, splits, name, damage, message, make_corpus, moods, tmp_path):
    data = make_corpus(train1=4, test1=4)
    if task == "sentence_prediction":
        shutil.rmtree(data)
        shutil.copytree(moods, data)
    cfg = config(data, task, valid_subset="valid,test" if name.startswith("test.") else "valid")
    data_files.check_data(cfg, splits)
    damage(data / name)
    with pytest.raises(InputError, match=message) as refusal:
        data_files.check_data(cfg, splits)
    assert str(refusal.value).startswith(str(data)) and "\n" not in str(refusal.value)


def test_a_source_without_references_and_missing_files_pass(make_corpus):
    data = make_corpus()
    for side in ("idx", "bin"):
        (data / f"test.en-de.de.{side}").unlink()
    data_files.check_data(config(data), ["test", "nowhere"])
    data_files.check_data(config(data / "gone"), ["test"])


@pytest.mark.parametrize("command, option", data_files.READS.items())
def test_commands_with_a_model_check_the_splits_they_read(command, option, make_corpus, monkeypatch):
    data = make_corpus(other=4)
    monkeypatch.setattr(sys, "argv", [command])
    task = "language_modeling" if command == "fairseq-eval-lm" else "translation"
    flags = Namespace(
        path="model.pt", task=task, data=str(data), source_lang=None, target_lang=None, **{option: "test,other"}
    )
    assert data_files.check_flags(flags) is None
    shorten(data / ("other.bin" if command == "fairseq-eval-lm" else "other.en-de.de.bin"), 1)
    with pytest.raises(InputError, match=f"^{data}/other.*bin: is damaged"):
        data_files.check_flags(flags)
    monkeypatch.setattr(sys, "argv", ["fairseq-interactive"])  # reads no split
    data_files.check_flags(flags)


@pytest.mark.parametrize("trials", [30, pytest.param(1000, marks=pytest.mark.slow)])
def test_random_damage(trials, make_corpus, tmp_path):
    """A folder that passes is readable to its last sentence, and every id is in its dictionary.

    fairseq itself asserts that both sides have equally many sentences.
    """
    from fairseq.tasks.translation import TranslationConfig, TranslationTask

    data = make_corpus(train=5, valid=2, test=2)
    names = sorted(path.name for path in data.iterdir() if "en-de" in path.name or path.name.startswith("dict.en"))
    task_options = {"source_lang": "en", "target_lang": "de", "dataset_impl": None, "train_subset": "train"}
    refused = 0
    for seed in range(trials):
        draw = random.Random(seed)
        shutil.copytree(data, folder := tmp_path / f"{seed}")
        for name in draw.sample(names, draw.choice([1, 1, 2])):
            (folder / name).write_bytes(
                damaged((folder / name).read_bytes(), draw, (data / draw.choice(names)).read_bytes())
            )
        try:
            data_files.check_data(config(folder, valid_subset="valid,test"))
        except InputError as refusal:
            refused += 1
            assert str(refusal).startswith(str(folder)) and "\n" not in str(refusal), seed
            continue
        finally:
            index_files.forget()
        task = TranslationTask.setup_task(TranslationConfig(**task_options, data=str(folder)))
        for split in ("train", "valid", "test"):
            task.load_dataset(split)
            for pair in task.dataset(split):
                assert pair["source"].max() < len(task.source_dictionary), seed
                assert pair["target"].max() < len(task.target_dictionary), seed
        shutil.rmtree(folder)
    assert refused > trials / 2


def test_other_commands_are_not_checked(monkeypatch):
    reached = []
    monkeypatch.setattr(preflight, "check_training", lambda cfg: reached.append("checked"))
    distributed_utils.call_main(single_process(), lambda cfg: reached.append("main"))
    assert reached == ["main"]


def single_process():
    from fairseq.dataclass.configs import FairseqConfig
    from omegaconf import OmegaConf

    return OmegaConf.structured(FairseqConfig())


def test_generation_from_a_missing_split(make_corpus, run_fairseq, tiny_training, tmp_path):
    data, save_dir = make_corpus(), tmp_path / "ck"
    run_fairseq("train", data, *tiny_training, "--save-dir", save_dir)
    flags = ["--path", save_dir / "checkpoint_last.pt", "--batch-size", 4, "--cpu"]
    for command, split in (("generate", "--gen-subset"), ("validate", "--valid-subset")):
        task = ["--task", "translation"] if command == "validate" else []
        with pytest.raises(FileNotFoundError) as caught:
            run_fairseq(command, data, *flags, *task, split, "exam")
        # The command prints this line.
        line = f"Dataset not found: exam ({data}); create it with fairseq-preprocess ({SEE_DATA})"
        assert str(find_input_error(caught.value)) == line
    (data / "dict.en.txt").unlink()
    with pytest.raises(InputError, match="dict.en.txt: no such dictionary"):
        run_fairseq("generate", data, *flags)


def test_a_log_file_that_cannot_be_written(tmp_path):
    preflight.check_log_file(None)
    preflight.check_log_file(str(tmp_path / "new.log"))
    assert not list(tmp_path.iterdir())
    for path in (tmp_path / "none" / "x.log", tmp_path, ""):
        with pytest.raises(InputError, match=r"^--log-file .*: must be a file in an existing folder$"):
            preflight.check_log_file(str(path))
    with pytest.raises(InputError, match=r"^--log-file .*: cannot be written \(File name too long\)$"):
        preflight.check_log_file(str(tmp_path / ("x" * 300)))
