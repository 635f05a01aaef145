"""Text to symbols of a dictionary: the same symbols as subword-nmt and fairseq-interactive, with white space of every kind."""

import io
import random
import sys
from types import SimpleNamespace

import pytest
from fairseq.data.encoders.subword_nmt_bpe import SubwordNMTBPE
from fairseq.tokenizer import tokenize_line
from fairseq_cli.interactive import buffered_read

from fairseq_reservoir.text.byte_pairs import BytePairs
from fairseq_reservoir.text.parts import TextParts
from fairseq_reservoir.text.pieces import Pieces

BLANKS = [c for c in map(chr, range(sys.maxunicode + 1)) if c.isspace()]
# Codes that subword-nmt learned from French contain blanks: "1", U+00A0, "0" is one word.
CODES = "#version: 0.2\n0 0\n1 \u00a0\n00 0</w>\nb </w>\na b\nab c</w>\n\u202f %</w>\n"


def pieces_of(codes, **changes):
    return Pieces(TextParts(("fr", "en"), ("ab@@",), (), "byte_pairs", codes.encode(), **changes), "codes")


def random_lines(seed, count):
    draw = random.Random(seed)
    for _ in range(count):
        words = ["".join(draw.choices(["a", "b", "c", "0", "1", "%", draw.choice(BLANKS)], k=draw.randint(1, 6)))]
        words += draw.choices(["", " ", "  ", "10\u00a0000", "5\u202f%", "\u3000", "\t"], k=draw.randint(0, 5))
        draw.shuffle(words)
        yield draw.choice(["", " ", "\u00a0"]) + " ".join(words)


def test_blanks():
    assert len(BLANKS) == 29 and {"\t", " ", "\x85", "\u00a0", "\u2009", "\u2028", "\u202f", "\u3000"} < {*BLANKS}


def test_a_word_ends_at_a_space_only():
    """One word of six characters, 10 000 with U+00A0, is split into "1", "0", U+00A0, "000" by the codes "0 0" and "00 0</w>"."""
    cut = BytePairs(CODES.encode(), "codes")
    assert cut.cut_line("10\u00a0000 abc") == ["1@@", "0@@", "\u00a0@@", "000", "abc"]
    # Symbols of the dictionary end at every blank, so U+00A0 of the piece "U+00A0@@" is lost.
    assert pieces_of(CODES).cut("10\u00a0000 abc") == ["1@@", "0@@", "@@", "000", "abc"]
    assert pieces_of(CODES).cut("5\u202f%") == ["5@@", "%"]
    assert pieces_of(CODES).cut("\u00a0 \u3000\t") == []


def test_as_subword_nmt_cuts_lines_with_every_blank():
    apply_bpe = pytest.importorskip("subword_nmt.apply_bpe", reason="subword-nmt is not installed")
    for codes in (CODES, CODES.replace("#version: 0.2\n", "")):  # version 0.1: the end of a word is a separate symbol
        theirs, ours = apply_bpe.BPE(io.StringIO(codes)), BytePairs(codes.encode(), "codes")
        for line in [*random_lines(1, 600), *BLANKS, *(f"ab{blank}abc 1{blank}" for blank in BLANKS)]:
            assert " ".join(ours.cut_line(line)) == theirs.process_line(line).strip(" \r\n"), repr(line)


@pytest.mark.parametrize("tokenizer", ["", "moses"])
def test_as_fairseq_interactive_cuts_lines_with_every_blank(tokenizer, tmp_path):
    pytest.importorskip("subword_nmt", reason="subword-nmt is not installed")
    (tmp_path / "codes").write_text(CODES, encoding="utf-8")
    bpe = SubwordNMTBPE(SimpleNamespace(bpe_codes=str(tmp_path / "codes"), bpe_separator="@@"))
    tokenize = str
    if tokenizer:
        sacremoses = pytest.importorskip("sacremoses", reason="sacremoses is not installed")
        moses = sacremoses.MosesTokenizer("fr").tokenize
        tokenize = lambda line: moses(line, aggressive_dash_splits=True, return_str=True, escape=True)  # noqa: E731
    ours = pieces_of(CODES, tokenizer=tokenizer)
    lines = [line for line in random_lines(2, 300) if not {"\n", "\r"} & {*line}]
    (tmp_path / "input").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="")
    (read,) = buffered_read(str(tmp_path / "input"), len(lines))
    assert [ours.cut(line) for line in lines] == [tokenize_line(bpe.encode(tokenize(line))) for line in read]


def test_words_are_those_of_fairseqs_dictionary():
    words = Pieces(TextParts(("fr", "en"), ("a",), ()), "codes")
    assert all(words.cut(line) == tokenize_line(line) for line in random_lines(3, 300))
