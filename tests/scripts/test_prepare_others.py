"""prepare_wmt14.sh, prepare_wmt18_tr_en.sh, prepare_enwik8.sh and prepare_glue.sh on small archives of the public format."""

import re
import subprocess
from pathlib import Path

import pytest
from fairseq.data.encoders.gpt2_bpe_utils import bytes_to_unicode
from prepare import console, enwik8, glue, wmt14, wmt18_tr_en
from prepare.console import InputError
from sacremoses import MosesPunctNormalizer, MosesTokenizer

from tests.support import miniature
from tests.support.miniature import ROOT, sentences
from tests.support.outcome import binary, lines, tree


def reference(language, normalise=True):
    """A short reference implementation of tokenization."""
    moses, punctuation = (
        MosesTokenizer(language),
        MosesPunctNormalizer("en" if language == "en" else "de", perl_parity=True),
    )

    def tokens(line):
        line = punctuation.normalize(line + "\n") if normalise else line
        return re.sub(
            r"([^ .])\.$", r"\1 .", moses.tokenize(line, aggressive_dash_splits=True, return_str=True).rstrip()
        )

    return tokens


def stays(pair):
    first, second = (len(line.split()) for line in pair)
    return 1 <= first <= 250 and 1 <= second <= 250 and first <= 1.5 * second and second <= 1.5 * first


def joined(path):
    return [line.replace("@@ ", "") for line in lines(path)]


def test_wmt14(tmp_path, prepare):
    pytest.importorskip("subword_nmt", reason="subword-nmt is not installed")
    miniature.wmt14(tmp_path)
    printed = prepare(wmt14, "--archive", tmp_path, "--bpe-size", 60)
    assert "training-parallel-europarl-v7.tgz has" in printed and "the public archive has 657,632,379" in printed
    text, pieces, data = Path("data/wmt14/text"), Path("data/wmt14/pieces"), Path("data-bin/wmt14")
    for language in ("en", "de"):
        tokens = reference(language)
        train = [tokens(line) for line in sentences(language, 300)]
        assert lines(text / f"valid.{language}") == [train[99], train[199], train[299]]
        assert lines(text / f"train.{language}") == train[:99] + train[100:199] + train[200:299]
        tokens = reference(language, normalise=False)
        test = [tokens(line.replace("’", "'")) for line in sentences(language, 9)]
        assert lines(text / f"test.{language}") == joined(pieces / f"test.{language}") == test
        assert binary(data, f"train.en-de.{language}", language) == lines(pieces / f"train.{language}")
    pairs = list(zip(lines(pieces / "train.en"), lines(pieces / "train.de"), strict=True))
    assert 0 < len(pairs) < 297 and all(map(stays, pairs))
    assert (data / "dict.en.txt").read_bytes() == (data / "dict.de.txt").read_bytes()

    before = tree(data)
    prepare(wmt14, "--archive", tmp_path, "--bpe-size", 60, "--valid", "newstest2013")
    tokens = reference("de")
    assert len(lines(text / "train.de")) == 300
    assert lines(text / "valid.de") == joined(pieces / "valid.de") == [tokens(line) for line in sentences("de", 100)]
    prepare(wmt14, "--archive", tmp_path, "--bpe-size", 60)
    assert tree(data) == before


def test_wmt18_tr_en(tmp_path, prepare):
    miniature.wmt18(tmp_path)
    prepare(wmt18_tr_en, "--archive", tmp_path, "--bpe-size", 120)
    text, pieces, data = Path("data/wmt18_tr_en/text"), Path("data/wmt18_tr_en/pieces"), Path("data-bin/wmt18_tr_en")
    for language in ("tr", "en"):
        tokens, raw = reference(language), sentences(language, 200)
        cut = [line.replace("’", "'") for line in raw]  # as the recipes extract sentences from SGML
        for name, part in {"train": raw, "valid": cut[:10], "test": cut[5:15], "test1": cut[1:11]}.items():
            assert lines(text / f"{name}.{language}") == [tokens(line) for line in part]
        test = [line.replace(" ", "").replace("▁", " ").strip() for line in lines(pieces / f"test.{language}")]
        assert test == lines(text / f"test.{language}")
        assert binary(data, f"train.tr-en.{language}", language) == lines(pieces / f"train.{language}")
        assert len(binary(data, f"test1.tr-en.{language}", language)) == 10
    assert (data / "dict.en.txt").read_bytes() == (data / "dict.tr.txt").read_bytes()
    assert (data / "sentencepiece.model").is_file()


def test_enwik8(tmp_path, prepare):
    content = "\n".join(sentences("tr", 60)).encode() + b"\n\n\x00\xff\r"
    content = content[: len(content) // 20 * 20]
    prepare(enwik8, "--archive", miniature.zipped(tmp_path / "enwik8.zip", {"enwik8": content}))
    data, read, twentieth = Path("data-bin/enwik8"), {}, len(content) // 20
    for name in ("train", "valid", "test"):
        sentences_of_bytes = binary(data, name, None, "dict.txt")
        read[name] = b"\n".join(bytes(map(int, line.split())) for line in sentences_of_bytes)
    assert read["train"] + read["valid"] + read["test"] == content
    assert len(read["valid"]) == len(read["test"]) == twentieth


def test_enwik8_truncated(tmp_path, prepare):
    archive = miniature.zipped(tmp_path / "enwik8.zip", {"enwik8": bytes(range(256)) * 9})
    archive.write_bytes(archive.read_bytes()[:-40])
    with pytest.raises(InputError, match="enwik8.zip is truncated or damaged"):
        prepare(enwik8, "--archive", archive)
    with pytest.raises(InputError, match="x.zip has no enwik8: is it the right archive"):
        prepare(enwik8, "--archive", miniature.zipped(tmp_path / "x.zip", {"enwik9": b""}))


def test_glue(tmp_path, prepare):
    miniature.glue(tmp_path)
    printed = prepare(glue, "--archive", tmp_path)
    assert "train: 12 rows, 1 with another number of fields dropped" in printed
    raw, data, alphabet = sentences("en", 12), Path("data-bin/glue"), [*bytes_to_unicode().values(), " t", "he", " the"]

    def read(task, column, name):
        numbers = binary(data / task / column, name, None, "dict.txt")
        return ["".join(alphabet[int(number)] for number in line.split()).replace("Ġ", " ") for line in numbers]

    for task, columns in (("SST-2", ["input0"]), ("QQP", ["input0", "input1"]), ("MNLI", ["input0", "input1"])):
        for column in columns:
            wanted = raw if column == "input0" else raw[::-1]
            assert read(task, column, "train") == wanted
            assert read(task, column, "valid") == (wanted if task == "MNLI" else wanted[:6])
    assert read("SST-2", "input0", "test") == raw[:4] and read("MNLI", "input1", "test1") == raw[::-1][:3]
    labels = ["entailment", "neutral", "contradiction"]
    assert binary(data / "MNLI" / "label", "valid1", None, "dict.txt") == labels * 4
    assert binary(data / "QQP" / "label", "train", None, "dict.txt") == ["0", "1"] * 6
    assert not (data / "QQP" / "label" / "test.bin").exists()


def test_glue_with_units_of_its_own_or_of_a_pretraining(tmp_path, prepare):
    miniature.glue(tmp_path)
    prepare(glue, "--archive", tmp_path, "--task", "QQP", "--bpe", "sentencepiece", "--bpe-size", 60)
    data = Path("data-bin/glue/QQP")
    for column, wanted in (("input0", sentences("en", 12)), ("input1", sentences("en", 12)[::-1])):
        pieces = binary(data / column, "train", None, "dict.txt")
        assert [line.replace(" ", "").replace("▁", " ").strip() for line in pieces] == wanted
    assert (data / "input0" / "dict.txt").read_bytes() == (data / "input1" / "dict.txt").read_bytes()
    before = tree(data / "input1")
    own = ["--codes", "data/glue/QQP/bpe/sentencepiece.model", "--dict", data / "input0" / "dict.txt"]
    prepare(
        glue,
        "--archive",
        tmp_path,
        "--task",
        "QQP",
        "--bpe",
        "sentencepiece",
        *own,
        "--dest",
        "other",
        "--work",
        "work",
    )
    assert tree(Path("other/QQP/input1")) == before
    with pytest.raises(InputError, match="--codes and --dict go together"):
        prepare(glue, "--bpe", "sentencepiece", "--codes", own[1])
    with pytest.raises(
        InputError, match="--codes goes with --bpe subword_nmt, fastbpe, sentencepiece; --bpe gpt2 has its own"
    ):
        prepare(glue, *own)


@pytest.mark.parametrize("recipe", [enwik8, glue, wmt14, wmt18_tr_en])
def test_a_comma_in_the_folder_of_text_is_refused(recipe, tmp_path):
    """fairseq-preprocess would read the text after a comma as another validation or test set."""
    with pytest.raises(InputError, match="--work .*/a,b: a comma in it"):
        recipe.main(["--work", str(tmp_path / "a,b")])
    assert not (tmp_path / "a,b").exists()


@pytest.mark.parametrize("size", [0, 11, 999])
def test_an_enwik8_of_no_text_is_refused(prepare, tmp_path, size):
    archive = miniature.zipped(tmp_path / "enwik8.zip", {"enwik8": b"x" * size})
    with pytest.raises(InputError, match=f"enwik8 has {size} bytes, at least 1000 are needed"):
        prepare(enwik8, "--archive", archive)
    assert not Path("data-bin").exists()


@pytest.mark.parametrize(
    "flags, message",
    [
        ("--mirror=x", "--mirror: 'x' is not an address"),
        ("--work=FILE", "--work: 'FILE': FILE is not a folder"),
        ("--work=FILE/below", "FILE is not a folder"),
        ("--dest=FILE", "--dest: 'FILE': FILE is not a folder"),
        ("--dest=", "--dest: '' is not a name of a folder"),
        ("--dest=/", "--dest: '/' is not a name of a folder"),
        ("--dest=--", "--dest '--': is not a value"),
        ("--dest=-x", "--dest: '-x': fairseq-preprocess would read"),
        ("--work=--", "--work '--': is not a value"),
        ("--bpe=--", "--bpe '--': is not a value"),
        ("--archive=--", "--archive '--': is not a value"),
        ("--jobs=0", "--jobs: '0' is not a positive number"),
        (f"--jobs={'9' * 5000}", "is not a positive number"),
        ("--bpe=x", "--bpe"),
    ],
)
@pytest.mark.parametrize("recipe", [enwik8, glue, wmt14, wmt18_tr_en])
def test_odd_flags_are_refused_in_one_line(recipe, flags, message, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("FILE").write_text("kept")
    with pytest.raises(SystemExit) as ended:
        console.run("prepare", lambda: recipe.main([flags]))
    said = capsys.readouterr()
    assert (
        ended.value.code == 2 and said.err.count("\n") == 1 and said.err.startswith("prepare: ") and message in said.err
    )
    assert [path.name for path in tmp_path.iterdir()] == ["FILE"]


@pytest.mark.parametrize("script", sorted((ROOT / "scripts").rglob("*.sh")), ids=lambda path: path.name)
def test_bash_reads_every_script(script):
    subprocess.run(["bash", "-n", script], check=True)


@pytest.mark.parametrize("recipe", [enwik8, glue, wmt14, wmt18_tr_en])
def test_help_describes_the_data(recipe, capsys):
    assert (ROOT / "scripts" / f"prepare_{recipe.NAME}.sh").is_file()
    with pytest.raises(SystemExit):
        recipe.main(["--help"])
    printed = capsys.readouterr().out
    assert recipe.__doc__ in printed and f"(data-bin/{recipe.NAME})" in printed


def test_a_carriage_return_in_a_field_is_a_space(tmp_path):
    """fairseq-preprocess would end the line there, and shift all labels below."""
    (tmp_path / "t.tsv").write_bytes(b"sentence\tlabel\r\na\rb\t1\r\nc\t0\n")
    assert glue.read_table(tmp_path / "t.tsv", True) == (
        [{"sentence": "a b", "label": "1"}, {"sentence": "c", "label": "0"}],
        0,
    )
