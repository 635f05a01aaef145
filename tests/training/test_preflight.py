"""Files that a run needs are checked before data is loaded and before anything is written."""

import os
import shutil

import pytest
from fairseq.data import Dictionary
from fairseq.distributed import utils as distributed_utils

from fairseq_reservoir.errors import InputError
from fairseq_reservoir.training import data_files, preflight


@pytest.fixture
def refusal(run_fairseq, tiny_training, tmp_path, monkeypatch):
    """Return a function that trains and returns the message of the refusal; no dictionary is read, nothing written."""

    def refuse(data, *flags, save_dir=None, training=tiny_training):
        loaded = []
        monkeypatch.setattr(Dictionary, "load", lambda *args: loaded.append(args))
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(InputError) as caught:
            run_fairseq("train", data, *training, "--save-dir", save_dir or tmp_path / "checkpoints", *flags)
        assert loaded == [] and sorted(tmp_path.rglob("*")) == before
        assert "\n" not in str(caught.value)
        return str(caught.value)

    return refuse


def test_missing_folder(refusal, tmp_path):
    assert refusal(tmp_path / "nowhere").startswith(f"DATA: {tmp_path}/nowhere is no folder; fairseq-preprocess")


def test_folder_without_data(refusal, tmp_path):
    (tmp_path / "data").mkdir()
    assert f"no file such as train.en-de.en.idx in {tmp_path}/data" in refusal(tmp_path / "data")


def test_missing_dictionary(refusal, make_corpus):
    data = make_corpus()
    (data / "dict.de.txt").unlink()
    assert refusal(data) == f"{data}/dict.de.txt: no such dictionary; fairseq-preprocess writes it"


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
    assert refusal(data) == f"{data}/{name}: no such binarised file ({flag}); fairseq-preprocess writes it"


def test_languages_given_the_other_way_round(refusal, make_corpus):
    data = make_corpus()
    (data / "train.en-de.de.bin").unlink()
    assert f"{data}/train.en-de.de.bin" in refusal(data, "-s", "de", "-t", "en", "--disable-validation")
    for file in data.glob("train.en-de.*"):
        file.unlink()
    assert f"{data}/train.de-en.de.idx" in refusal(data, "-s", "de", "-t", "en", "--disable-validation")


def test_empty_corpus(refusal, make_corpus):
    data = make_corpus(train=0)
    assert refusal(data) == f"{data}/train.en-de.en.idx: an empty corpus, 0 sentences; at least 1 is needed"


@pytest.mark.parametrize("split", ["train", "train1", "valid"])
def test_sides_of_different_length(refusal, make_corpus, split):
    data, other = make_corpus(train1=6), make_corpus("other", train1=4, train=4, valid=4)
    for suffix in ("idx", "bin"):
        shutil.copy(other / f"{split}.en-de.de.{suffix}", data / f"{split}.en-de.de.{suffix}")
    count = {"train": 21, "train1": 6, "valid": 5}[split]
    assert refusal(data) == (
        f"{data}/{split}.en-de.en.idx has {count} sentences and {data}/{split}.en-de.de.idx has 4;"
        " both sides need the same number"
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
    assert refusal(data / "gone", training=training).startswith(f"DATA: {data}/gone is no folder")


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
    """Return a stand-in for fairseq-train's main that only notes that it was reached."""
    return lambda cfg: reached.append("main")


def test_several_folders_and_text_are_left_to_fairseq(make_corpus):
    from types import SimpleNamespace

    first, second = make_corpus("first"), make_corpus("second")
    for folder in (first, second):
        (folder / "train.en-de.en.idx").unlink()
    dataset = SimpleNamespace(
        train_subset="train", valid_subset="valid", disable_validation=False, combine_valid_subsets=False
    )
    task = SimpleNamespace(_name="translation", source_lang="en", target_lang="de", dataset_impl=None)
    cfg = SimpleNamespace(task=task, dataset=dataset)
    data_files.check_translation(cfg, [str(first), str(second)])
    task.dataset_impl = "raw"
    data_files.check_translation(cfg, [str(first)])
    task.dataset_impl = None
    with pytest.raises(InputError):
        data_files.check_translation(cfg, [str(first)])


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
    # Plain fairseq raises FileNotFoundError; whoever catches that still does.
    with pytest.raises(FileNotFoundError) as caught:
        run_fairseq("generate", data, *flags, "--gen-subset", "exam")
    assert isinstance(caught.value, InputError)
    assert str(caught.value).startswith(f"Dataset not found: exam ({data}); fairseq-preprocess writes it (see DATA")
    with pytest.raises(InputError, match="^Dataset not found: exam"):
        run_fairseq("validate", data, *flags, "--task", "translation", "--valid-subset", "exam")
    (data / "dict.en.txt").unlink()
    with pytest.raises(InputError, match="dict.en.txt: no such file"):
        run_fairseq("generate", data, *flags)
