"""Only a line feed ends a line of a corpus, so that line i of one file belongs to line i of the other."""

import subprocess
import sys
from pathlib import Path

import pytest

from fairseq_reservoir.studies.report.translations import lines_of, read_references, read_sentences, read_test
from tests.support.scripts import run_script

EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES / "quickstart"))

from pairs import read_pairs  # noqa: E402

# Python's splitlines() also ends a line at these, and a text file opened without newline="\
# " at the first one.
OTHERS = "\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
NUMBERS = "zero one two three four five six seven eight nine".split()
ZAHLEN = "null eins zwei drei vier fünf sechs sieben acht neun".split()


def words(number, of):
    return " ".join(of[int(digit)] for digit in f"{number:03}")


def write_corpus(folder):
    """121 pairs, with line i made of words of i. Source line 20 and target line 101 contain a carriage return."""
    for language, of, odd in (("en", NUMBERS, 20), ("de", ZAHLEN, 101)):
        lines = [words(number, of) for number in range(121)]
        lines[odd] = lines[odd].replace(" ", "\r", 1)
        (folder / f"c.{language}").write_bytes("".join(f"{line}\n" for line in lines).encode())


def test_a_carriage_return_within_a_line_shifts_no_pair(tmp_path):
    write_corpus(tmp_path)
    pairs = read_pairs(tmp_path / "c.en", tmp_path / "c.de")
    assert pairs == [(words(number, NUMBERS), words(number, ZAHLEN)) for number in range(121)]
    assert pairs[20] == ("zero two zero", "null zwei null") and pairs[101] == ("one zero one", "eins null eins")


def test_the_split_of_a_corpus_with_carriage_returns(tmp_path):
    write_corpus(tmp_path)
    (tmp_path / "out").mkdir()
    ended = run_script(EXAMPLES / "quickstart" / "split.py", tmp_path / "c.en", tmp_path / "c.de", 1, tmp_path / "out")
    assert ended.returncode == 0 and ended.stdout.startswith("121 pairs, 121 good ones: "), ended.stderr
    there = []
    for part in ("train", "valid", "test"):
        there += read_pairs(tmp_path / "out" / f"{part}.en", tmp_path / "out" / f"{part}.de")
    assert sorted(there) == sorted((words(number, NUMBERS), words(number, ZAHLEN)) for number in range(121))


def test_pieces_of_a_corpus_with_carriage_returns(tmp_path):
    """fairseq-preprocess also ends a line at a carriage return, so there must be none."""
    write_corpus(tmp_path)
    for language in ("en", "de"):
        for part in ("train", "valid", "test"):
            (tmp_path / f"{part}.{language}").write_bytes((tmp_path / f"c.{language}").read_bytes())
    ended = run_script(EXAMPLES / "quickstart" / "pieces.py", tmp_path, "en", "de", 60, tmp_path / "pieces")
    assert ended.returncode == 0, ended.stderr
    for language, of in (("en", NUMBERS), ("de", ZAHLEN)):
        lines = (tmp_path / "pieces" / f"valid.{language}").read_bytes().decode().split("\n")
        joined = [line.replace(" ", "").replace("▁", " ").strip() for line in lines]
        assert joined == [words(number, of) for number in range(121)] + [""]


@pytest.mark.parametrize("other", OTHERS, ids=lambda other: f"U+{ord(other):04X}")
def test_lines_of_a_report(other, tmp_path):
    """The references of --references, and those and the translations in a run's folder."""
    text = f"a cat{other}sat here on the mat\nb\n"
    assert lines_of(text) == [f"a cat{other}sat here on the mat", "b"]
    (tmp_path / "references").write_bytes(text.encode())
    assert read_references(str(tmp_path / "references")) == lines_of(text)
    (tmp_path / "hypotheses").write_bytes(text.encode())
    test = read_test(tmp_path, None)
    assert test.bleu == pytest.approx(100) and not test.remarks


def test_windows_line_ends_and_byte_order_mark():
    assert lines_of("\ufeffa\r\n\nc\r\n") == ["a", "", "c"]
    assert lines_of("a\rb\r\r\n") == ["a\rb\r"]


def test_translations_with_carriage_returns():
    """A progress bar ends in a carriage return. One within a sentence belongs to the sentence."""
    text = "T-0\ta\rb\n 10%|\r    \rD-1\t-1\tc\rd\r\nD-0\t-1\te\n"
    assert read_sentences(text) == {"T": {0: "a\rb"}, "D": {1: "c\rd", 0: "e"}}


def test_text_of_characters(tmp_path):
    for part in ("train", "valid", "test"):
        (tmp_path / f"{part}.txt").write_bytes(f"a{OTHERS}b\r\n\nc\n".encode())
    (tmp_path / "out").mkdir()
    ended = run_script(EXAMPLES / "language_models" / "characters.py", tmp_path, tmp_path / "out")
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "out" / "valid.txt").read_bytes().decode() == "a ▁ b\n\nc\n"


def test_scripts_that_read_the_output_of_fairseq_generate(tmp_path):
    log = tmp_path / "generate.log"
    log.write_bytes(
        b"T-0\tone\rtwo\nH-0\t-1\tein\rs zwei\nD-0\t-1\tein\rs zwei\nT-1\tthree\nH-1\t-1\tdrei\nD-1\t-1\tdrei\n"
    )
    ended = subprocess.run([sys.executable, "-c", HYPOTHESES, log], cwd=EXAMPLES, capture_output=True)
    assert ended.stdout == b"ein\rs zwei\ndrei\n", ended.stderr


HYPOTHESES = """
import sys
sys.modules["torch"] = sys.modules["fairseq"] = None
import runpy
runpy.run_path("hypotheses.py", run_name="__main__")
"""
