"""Fixtures shared by the tests: a tiny corpus in the format of fairseq-preprocess, and fairseq's commands in this process."""

import gc
import logging
import os
import random
import sys
from pathlib import Path

import pytest
import torch

import fairseq_reservoir
from tests.support import hydra_memory

hydra_memory.remember()
# Hundreds of new processes would compile the package again.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# Tests do not simulate power failures, and fsync takes longer than most trainings here.
os.fsync = lambda descriptor: None
# A DataLoader's worker often notices its end only after its wait for work, 5 s by default.
torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL = 0.2
if not torch.cuda.is_available():
    # Triton must know that it interprets kernels before anything imports it.
    os.environ["TRITON_INTERPRET"] = "1"
    # torch stores each seed for later devices with a stack trace, which takes longer under pytest than many updates.
    for devices in (torch.cuda.random, torch.xpu.random, torch.mtia):
        devices._lazy_call = lambda call, **how: None


def pytest_collection_finish():
    """Exclude imported objects from garbage collection, millions that live to the end, and collect others rarely.

    A tenth of the time of a short training was garbage collection.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


USER_DIR = str(Path(fairseq_reservoir.__file__).parent)


def write_split(prefix, sentences, words):
    """Write ``sentences`` (lists of words) as ``prefix.idx`` and ``prefix.bin``."""
    from fairseq.data.indexed_dataset import MMapIndexedDatasetBuilder

    builder = MMapIndexedDatasetBuilder(f"{prefix}.bin")
    for sentence in sentences:
        # Ids 0 to 3 are fairseq's <s>, <pad>, </s> and <unk>.
        builder.add_item(torch.IntTensor([4 + words.index(word) for word in sentence] + [2]))
    builder.finalize(f"{prefix}.idx")


def write_corpus(folder, **sizes):
    """Write a corpus of reversed strings of letters (en -> de) in the format of fairseq-preprocess; ``sizes`` of its splits."""
    words, draw = list("abcdefgh"), random.Random(1)
    folder.mkdir()
    for dictionary in ("dict.en.txt", "dict.de.txt", "dict.txt"):
        (folder / dictionary).write_text("".join(f"{word} 1\n" for word in words))
    for split, size in sizes.items():
        sentences = [draw.choices(words, k=draw.randint(1, 6)) for _ in range(size)]
        write_split(folder / f"{split}.en-de.en", sentences, words)
        write_split(folder / f"{split}.en-de.de", [sentence[::-1] for sentence in sentences], words)
        write_split(folder / split, sentences, words)
    return folder


@pytest.fixture
def make_corpus(tmp_path):
    """Return a function ``make_corpus(name, train=21)`` that writes a corpus for one test and returns its folder."""

    def make(name="data", **sizes):
        return write_corpus(tmp_path / name, **{"train": 21, "valid": 5, "test": 5} | sizes)

    return make


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory):
    """Cache of CTranslate2 models in a folder of these tests."""
    os.environ["FAIRSEQ_RESERVOIR_CACHE"] = str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="session")
def toy_data(tmp_path_factory):
    """Folder of a corpus that all tests share and none changes: 160 training sentences, 8 valid, 8 test."""
    return write_corpus(tmp_path_factory.mktemp("toy") / "data", train=160, valid=8, test=8)


@pytest.fixture(scope="session")
def moods(tmp_path_factory):
    """Folder for sentence_prediction with the dictionary of ``toy_data``. The label is whether the letters include "a"."""
    folder, words, draw = tmp_path_factory.mktemp("moods"), list("abcdefgh"), random.Random(2)
    for column, entries in (("input0", words), ("label", "01")):
        (folder / column).mkdir()
        (folder / column / "dict.txt").write_text("".join(f"{word} 1\n" for word in entries))
    for split, size in (("train", 160), ("valid", 40)):
        sentences = [draw.choices(words, k=draw.randint(2, 6)) for _ in range(size)]
        write_split(folder / "input0" / split, sentences, words)
        write_split(folder / "label" / split, [[str(int("a" in sentence))] for sentence in sentences], "01")
    return folder


@pytest.fixture(scope="session")
def of_numbers(tmp_path_factory):
    """Model of numbers in words, with its data and pieces (``tests.support.numbers``). All tests share it and none changes it."""
    from tests.support import numbers

    return numbers.make(tmp_path_factory.mktemp("numbers"))


@pytest.fixture(scope="session")
def with_text(of_numbers, tmp_path_factory):
    """Export of this model with its dictionaries and pieces, in an empty folder."""
    from fairseq_reservoir.checkpoint.export import export
    from fairseq_reservoir.text.collect import TextFlags

    out = tmp_path_factory.mktemp("colleague") / "model.safetensors"
    export(of_numbers.path, out, text=TextFlags(sentencepiece_model=str(of_numbers.pieces)))
    return out


@pytest.fixture(autouse=True)
def same_hooks():
    """Remove what fairseq and torch leave in this process, so that the order of tests does not matter.

    fairseq-hydra-train leaves a log handler for the test's stdout, which is closed soon, and its level. fairseq-preprocess leaves
    one that writes into its folder. A process group leaves torch's excepthook. Tests that read the log must call
    ``caplog.set_level``, because pytest resets the level between fixtures and test if ``--log-level`` or a configuration file
    sets it.
    """
    root, excepthook = logging.getLogger(), sys.excepthook
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:], sys.excepthook = handlers, excepthook
    logging.getLogger("fairseq_cli.preprocess").handlers.clear()
    root.setLevel(level)


@pytest.fixture
def run_fairseq(monkeypatch):
    """Return a function that runs a fairseq command with the plugin in this process: ``run_fairseq("train", data, ...)``.

    Translations have at most ten words, unless ``--max-len-b`` is among the flags.
    """

    def run(command, *words):
        from importlib import import_module

        # An untrained model generates words until the maximum length, 200 in fairseq.
        if command in ("generate", "interactive") and "--max-len-b" not in words:
            words += ("--max-len-b", 10)
        arguments = [f"fairseq-{command.replace('_', '-')}", *map(str, words), "--user-dir", USER_DIR]
        monkeypatch.setattr(sys, "argv", arguments)
        return import_module(f"fairseq_cli.{command}").cli_main()

    return run


@pytest.fixture
def tiny_training():
    """Flags of a training of seconds on one CPU core, with no randomness except in the initial weights."""
    return (
        "--cpu --arch transformer_tiny --encoder-layers 1 --decoder-layers 1 --dropout 0 --optimizer adam --lr 0.001"
        " --batch-size 4 --max-epoch 1 --num-workers 0 --log-format none --required-batch-size-multiple 8"
    ).split()
