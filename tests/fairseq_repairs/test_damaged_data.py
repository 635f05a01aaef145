"""Damaged dictionaries and binarised files: each one is refused with a one-line error, or loads as it was written."""

import random
import struct

import numpy as np
import pytest
import torch
from fairseq.data import Dictionary, data_utils, indexed_dataset
from fairseq.data.indexed_dataset import IndexedDatasetBuilder, MMapIndexedDatasetBuilder

from fairseq_reservoir.errors import InputError
from fairseq_reservoir.fairseq_repairs import index_files
from tests.support.damage import damaged

TRIES = [pytest.param(60, id="60"), pytest.param(1000, id="1000", marks=pytest.mark.slow)]


@pytest.mark.parametrize(
    "content, message",
    [
        (b"", "an empty dictionary; create it with fairseq-preprocess"),
        (b"a 1\nb\n", "line 2, 'b', must be a word and its count"),
        (b"a 1\n\nb 1\n", "line 2, '', must be a word and its count"),
        (b"a 1\nb x\n", "line 2, 'b x', must be a word and its count"),
        (b"a 1\nb 1.5\n", "line 2, 'b 1.5', must be a word and its count"),
        (b"a\t1\n", r"line 1, 'a\\t1', must be a word and its count"),
        (b"a 1\nb 1\na 2\n", "line 3 repeats 'a'; remove the line"),
        (b"a 1\n</s> 2\n", "line 2 repeats '</s>'; remove the line"),
        (b"a 1\n#fairseq:overwrite\n", "line 2, '#fairseq:overwrite', must be a word and its count"),
        (b"a 1\nb #fairseq:overwrite\n", "line 2, 'b #fairseq:overwrite', must be a word and its count"),
        (b"a 1\nb\xff 1\n", r"line 2 is not UTF-8 \(byte 0xff\)"),
        (b"a 1\n 5\n", "the word '' with count 5 is empty or has a NUL byte"),
        (b"a 1\nb\0 1\n", r"the word 'b\\x00' with count 1"),
        (b"a -1.5\n", "line 1, 'a -1.5', must be a word and its count"),
        (b"\xef\xbb\xbfa 1\n", "begins with a byte-order mark"),
        (b"a 1\n" + b"x" * 10**6, "line 2, 'x+', must be a word and its count"),
        (b"a 1\nb " + b"9" * 10**4, "line 2, 'b 9+', must be a word and its count"),
        (b"\0" * 4096, r"line 1, '\\x00.*', must be a word and its count"),
    ],
)
def test_a_damaged_dictionary(content, message, tmp_path):
    (path := tmp_path / "dict.txt").write_bytes(content)
    with pytest.raises(InputError, match=f"^{path}: {message}") as refusal:
        Dictionary.load(str(path))
    assert "\n" not in str(refusal.value) and len(str(refusal.value)) < 400


@pytest.mark.parametrize("content", [b"a 1\nb 2\n", b"a 1\r\nb 2\r\n", b"a 1\nb 2"])
def test_line_endings_that_fairseq_accepts(content, tmp_path):
    (path := tmp_path / "dict.txt").write_bytes(content)
    dictionary = Dictionary.load(str(path))
    assert dictionary.symbols[4:] == ["a", "b"] and dictionary.count[4:] == [1, 2]


def test_a_sentencepiece_vocabulary_is_read(tmp_path):
    """A BPE vocabulary, converted by ``tr '\\t' ' '``, has the negative rank of each piece in place of its count."""
    (path := tmp_path / "dict.txt").write_text("\u2581t 0\n\u2581a -1\nhe -2\n")
    dictionary = Dictionary.load(str(path))
    assert dictionary.symbols[4:] == ["\u2581t", "\u2581a", "he"] and dictionary.count[4:] == [0, -1, -2]


def test_an_overwritten_word(tmp_path):
    """As in plain fairseq, the word is in the list twice and has the later id."""
    (path := tmp_path / "dict.txt").write_text("a 1\nb 2\na 3 #fairseq:overwrite\n")
    dictionary = Dictionary.load(str(path))
    assert dictionary.symbols[4:] == ["a", "b", "a"] and dictionary.index("a") == 6
    path.write_text("a 1\na 3 #fairseq:overwrite\na 4\n")
    with pytest.raises(InputError, match="line 3 repeats 'a'; remove the line"):
        Dictionary.load(str(path))


def test_a_missing_dictionary_is_not_refused_as_damaged(tmp_path):
    with pytest.raises(FileNotFoundError):
        Dictionary.load(str(tmp_path / "dict.txt"))


@pytest.mark.parametrize("tries", TRIES)
def test_randomly_damaged_dictionaries(tries, tmp_path):
    content = "".join(f"{word} {1000 - i}\n" for i, word in enumerate(["the", "été", "@@", "▁a", *"bcdefgh"])).encode()
    for seed in range(tries):
        draw = random.Random(seed)
        (path := tmp_path / f"{seed}").write_bytes(
            damaged(content, draw, b"\x80\x02" * 99, [b"\n", b" ", b"\r", b"-", b"\xff"])
        )
        try:
            dictionary = Dictionary.load(str(path))
        except InputError as refusal:
            assert str(refusal).startswith(f"{path}: ") and "\n" not in str(refusal), seed
            continue
        assert len({*dictionary.symbols}) == len(dictionary.symbols) > 4, seed
        assert all(word and "\0" not in word for word in dictionary.symbols), seed


SENTENCES = [[4, 5, 2], [6, 2], [7, 8, 9, 4, 2], [2], [9, 9, 2]]


def write(prefix, kind, sentences=SENTENCES, dtype=np.uint16):
    """Write binarised data for --dataset-impl mmap, or for lazy and cached. Return the contents of both files by suffix."""
    builder = MMapIndexedDatasetBuilder if kind == "mmap" else IndexedDatasetBuilder
    writer = builder(f"{prefix}.bin", **({"dtype": dtype} if kind == "mmap" else {}))
    for sentence in sentences:
        writer.add_item(torch.IntTensor(sentence))
    writer.finalize(f"{prefix}.idx")
    return {suffix: prefix.with_name(f"{prefix.name}.{suffix}").read_bytes() for suffix in ("idx", "bin")}


def write_file(prefix, suffix, content):
    prefix.with_name(f"{prefix.name}.{suffix}").write_bytes(content)


@pytest.mark.parametrize("kind", ["mmap", "lazy", "cached"])
@pytest.mark.parametrize("sentences", [SENTENCES, [[2]], [[4, 2], [], [5, 2]]])
def test_undamaged_files_pass(kind, sentences, tmp_path):
    for number, dtype in enumerate([np.uint16, np.int32, np.int64] if kind == "mmap" else [None]):
        prefix = tmp_path / f"{number}"
        write(prefix, kind, sentences, dtype)
        for every in (True, False):
            index_files.check(str(prefix), None, every)
        index_files.check(str(prefix), kind)
        index_files.check_ids(str(prefix), 10, "dict.txt")


@pytest.mark.parametrize(
    "kind, suffix, change, message",
    [
        ("mmap", "idx", lambda c: b"x" + c[1:], "idx: is damaged .it begins with b'xMIDIDX"),
        ("mmap", "idx", lambda c: c[:20], "idx: is damaged .it begins with b'MMIDIDX"),
        ("mmap", "idx", lambda c: c[:9] + struct.pack("<Q", 2) + c[17:], "idx: is damaged .version 2; only version 1"),
        ("mmap", "idx", lambda c: c[:17] + b"\x63" + c[18:], "idx: is damaged .its code 99 does not stand for"),
        ("mmap", "idx", lambda c: c[:17] + b"\x06" + c[18:], "idx: is damaged .its code 6 does not stand for"),
        ("mmap", "idx", lambda c: c[:18] + struct.pack("<Q", 2**62) + c[26:], "idx: is damaged .it has 86 bytes, but .* describes 4,6"),
        ("mmap", "idx", lambda c: c[:-1], "idx: is damaged .it has 85 bytes, but its header describes 5 sentences, which need 86"),
        # 26 bytes of header, then int32 lengths: 3 2 5 1 3.
        ("mmap", "idx", lambda c: c[:30] + struct.pack("<i", -1) + c[34:], "idx: is damaged .the offset or length of sentence 2"),
        ("mmap", "idx", lambda c: c[:30] + struct.pack("<i", 3) + c[34:], "idx: is damaged .the offset or length of sentence 3"),
        ("mmap", "idx", lambda c: c[:46] + b"\1" + c[47:], "idx: is damaged .the offset or length of sentence 1"),
        ("mmap", "bin", lambda c: c[:-2], "bin: is damaged .it has 26 bytes, but .*idx describes 28"),
        ("mmap", "bin", lambda c: c + b"\0\0", "bin: is damaged .it has 30 bytes, but .*idx describes 28"),
        ("mmap", "bin", lambda c: b"", "bin: is damaged .it has 0 bytes, but .*idx describes 28"),
        ("lazy", "idx", lambda c: b"x" + c[1:], "idx: is damaged .it begins with b'xNTIDX"),
        ("lazy", "idx", lambda c: c[:24] + struct.pack("<Q", 8) + c[32:], "idx: .*its header describes tokens of type .* 8 bytes"),
        ("lazy", "idx", lambda c: c[:32] + struct.pack("<Q", 2**40) + c[40:], "idx: .*it has 184 bytes, but its header describes"),
        ("lazy", "idx", lambda c: c[:-8] + struct.pack("<q", 4), "idx: is damaged .the offset or length of sentence 5"),
        ("lazy", "idx", lambda c: c[:104] + struct.pack("<q", -1) + c[112:], "idx: is damaged .the offset or length of sentence 2"),
        ("lazy", "bin", lambda c: c[:-4], "bin: is damaged .it has 52 bytes, but .*idx describes 56"),
    ],
)  # fmt: skip
def test_a_damaged_index(kind, suffix, change, message, tmp_path):
    prefix = tmp_path / "train"
    content = write(prefix, kind)
    write_file(prefix, suffix, change(content[suffix]))
    with pytest.raises(InputError, match=f"^{prefix}.{message}"):
        index_files.check(str(prefix))
    with pytest.raises(InputError, match=f"^{prefix}.{message}"):  # every task opens its files with it
        data_utils.load_indexed_dataset(str(prefix))


def test_other_ranks_check_only_headers_and_file_sizes(tmp_path):
    prefix = tmp_path / "train"
    content = write(prefix, "mmap")
    write_file(prefix, "idx", content["idx"][:30] + struct.pack("<i", 3) + content["idx"][34:])
    index_files.check(str(prefix), None, every_sentence=False)
    write_file(prefix, "idx", content["idx"])
    write_file(prefix, "bin", content["bin"][:-2])
    with pytest.raises(InputError, match="train.bin: is damaged"):
        index_files.check(str(prefix), None, every_sentence=False)


def test_another_implementation_is_named(tmp_path):
    write(tmp_path / "train", "mmap")
    with pytest.raises(InputError, match="--dataset-impl lazy: .*train.idx needs --dataset-impl mmap$"):
        index_files.check(str(tmp_path / "train"), "lazy")
    with pytest.raises(InputError, match="train: not data of --dataset-impl cached .AssertionError"):
        data_utils.load_indexed_dataset(str(tmp_path / "train"), dataset_impl="cached")


def test_an_index_is_checked_once_with_and_without_an_implementation(tmp_path, monkeypatch):
    """The checks before a training do not name an implementation, but fairseq does when it opens the files."""
    write(tmp_path / "train", "mmap")
    prefix, read, check = str(tmp_path / "train"), [], index_files.check
    monkeypatch.setattr(index_files, "check", lambda *args: read.append(args[0]) or check(*args))
    index_files.check_once(prefix, None, True)
    index_files.check_once(prefix, "mmap", True)
    assert read == [prefix]
    with pytest.raises(InputError, match="--dataset-impl lazy: "):
        index_files.check_once(prefix, "lazy", True)
    (tmp_path / "train.bin").write_bytes(b"")
    with pytest.raises(InputError, match="train.bin: is damaged .it has 0 bytes"):
        index_files.check_once(prefix, "mmap", True)


@pytest.mark.parametrize("error", [MemoryError, RuntimeError, InputError, OSError])
def test_errors_with_other_causes_are_raised_unchanged(error, tmp_path, monkeypatch):
    def fail(*args, **kwargs):
        raise error("mine")

    write(tmp_path / "train", "mmap")
    failing = type("Failing", (), {"__init__": fail, "exists": staticmethod(lambda path: True)})
    monkeypatch.setattr(indexed_dataset, "MMapIndexedDataset", failing)
    with pytest.raises(error, match="^mine$"):
        data_utils.load_indexed_dataset(str(tmp_path / "train"), dataset_impl="mmap")
    (tmp_path / "dict.txt").write_text("a 1\n")
    if error is MemoryError:
        monkeypatch.setattr(Dictionary, "add_symbol", fail)
        with pytest.raises(error, match="^mine$"):
            Dictionary().add_from_file(str(tmp_path / "dict.txt"))


@pytest.mark.parametrize("kind", ["mmap", "lazy"])
def test_ids_that_are_not_in_the_dictionary(kind, tmp_path):
    write(tmp_path / "train", kind)
    index_files.check_ids(str(tmp_path / "train"), 10, "dict.txt")
    with pytest.raises(
        InputError,
        match="train.bin: token 8 has id 9, but dict.txt has 9 entries; the file is damaged, or was binarised",
    ):
        index_files.check_ids(str(tmp_path / "train"), 9, "dict.txt")
    write(tmp_path / "minus", kind, [[4, -1, 2]], np.int32)
    with pytest.raises(InputError, match="minus.bin: token 2 has id -1, but"):
        index_files.check_ids(str(tmp_path / "minus"), 9, "dict.txt")


def test_all_files_share_one_budget_of_bytes(tmp_path):
    """Both files have 28 bytes. The id 9 is at byte 14 of the first file, and at byte 0 of the second.

    Each check may read a quarter of the remaining bytes: first 12 of 48.
    """
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    write(tmp_path / "first", "mmap", [[4, 5, 2, 6, 2, 7, 8, 9, 4, 2, 2, 8, 8, 2]])
    write(tmp_path / "second", "mmap", [[9, 5, 2, 6, 2, 7, 8, 8, 4, 2, 2, 8, 8, 2]])
    scan = index_files.IdScan(left=48)
    scan.check(first, 9, "dict.txt")
    assert scan.left == 36  # the next check may read 9 bytes, and 8 of them are complete ids
    scan.check(first, 9, "dict.txt")
    assert scan.left == 28
    with pytest.raises(InputError, match="second.bin: token 1 has id 9"):
        scan.check(second, 9, "dict.txt")
    with pytest.raises(InputError, match="first.bin: token 8 has id 9"):
        index_files.IdScan(left=64).check(first, 9, "dict.txt")  # reads 16 bytes
    spent = index_files.IdScan(left=3)
    spent.check(second, 9, "dict.txt")
    assert spent.left == 3 and index_files.IdScan().left == 2**30


def test_invalid_utf8_is_refused_in_one_line(tmp_path):
    (tmp_path / "train").write_bytes(b"a\xff\n")
    with pytest.raises(InputError, match="train: not data of --dataset-impl raw .UnicodeDecodeError"):
        data_utils.load_indexed_dataset(str(tmp_path / "train"), Dictionary(), dataset_impl="raw")


@pytest.mark.parametrize("tries", TRIES)
@pytest.mark.parametrize("kind", ["mmap", "lazy"])
def test_randomly_damaged_files(kind, tries, tmp_path):
    """Files that pass have the written sentences, or with a damaged .bin file other ids of the dictionary."""
    content, other = write(tmp_path / "train", kind), write(tmp_path / "other", kind, [[4, 5, 6, 2], [2]] * 4)
    refused = 0
    for seed in range(tries):
        draw, prefix = random.Random(seed), tmp_path / f"{seed}"
        damaged_suffix = draw.choice(["idx", "bin"])
        for suffix in ("idx", "bin"):
            write_file(
                prefix,
                suffix,
                damaged(content[suffix], draw, other[suffix]) if suffix == damaged_suffix else content[suffix],
            )
        try:
            data = data_utils.load_indexed_dataset(str(prefix), dataset_impl=draw.choice([None, kind]))
            index_files.check_ids(str(prefix), 10, "dict.txt")
        except InputError as refusal:
            assert str(refusal).startswith((f"{prefix}", "--dataset-impl")) and "\n" not in str(refusal), seed
            refused += 1
            continue
        if getattr(data, "supports_prefetch", False):
            data.prefetch(range(len(data)))
        found = [data[i].tolist() for i in range(len(data))]
        assert [*map(len, found)] == [*map(len, SENTENCES)] and all(0 <= i < 10 for one in found for i in one), seed
        assert found == SENTENCES or damaged_suffix == "bin", seed
    assert refused > 0.6 * tries
