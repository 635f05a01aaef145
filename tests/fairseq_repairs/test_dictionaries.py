"""Dictionaries with overwritten words (``#fairseq:overwrite``) are saved as they were loaded."""

import io

import pytest
from fairseq.data import Dictionary

from tests.support.commands import USER_DIR

# Like the dictionary of fairseq's RoBERTa example, which lists special tokens among the other words.
LINES = "a 5\n<s> 4 #fairseq:overwrite\nb 3\na 2 #fairseq:overwrite\n<unk> 0 #fairseq:overwrite\n"


def saved_text(dictionary):
    stream = io.StringIO()
    dictionary.save(stream)
    return stream.getvalue()


def test_overwrite_flags_are_kept():
    dictionary = Dictionary.load(io.StringIO(LINES))
    assert saved_text(dictionary) == LINES
    reloaded = Dictionary.load(io.StringIO(saved_text(dictionary)))
    # <s>, <pad>, </s> and <unk> come first. A word that is listed twice has the later id.
    assert reloaded.indices == dictionary.indices == {"<pad>": 1, "</s>": 2, "<s>": 5, "b": 6, "a": 7, "<unk>": 8}


def test_plain_fairseq_cannot_read_its_own_file(monkeypatch):
    monkeypatch.setattr(Dictionary, "_save", Dictionary._save.__wrapped__)
    text = saved_text(Dictionary.load(io.StringIO(LINES)))
    assert "#fairseq:overwrite" not in text
    with pytest.raises(RuntimeError, match="Duplicate word found"):
        Dictionary.load(io.StringIO(text))


def test_dictionaries_without_the_flag_are_unchanged():
    assert saved_text(Dictionary.load(io.StringIO("a 5\nb 3\n"))) == "a 5\nb 3\n"


def test_preprocess(tmp_path, monkeypatch):
    from fairseq_cli import preprocess

    (tmp_path / "dict.txt").write_text(LINES)
    (tmp_path / "train").write_text("a b <s>\n")
    flags = ["--only-source", "--srcdict", tmp_path / "dict.txt", "--trainpref", tmp_path / "train"]
    flags += ["--destdir", tmp_path / "bin", "--workers", "1", "--user-dir", USER_DIR]
    monkeypatch.setattr("sys.argv", ["fairseq-preprocess", *map(str, flags)])
    preprocess.cli_main()
    assert (tmp_path / "bin" / "dict.txt").read_text() == LINES
