"""BPE codes: the same pieces as subword-nmt, by hand and for random words."""

import io

import pytest
from hypothesis import given, settings, strategies as st

from fairseq_reservoir.errors import InputError
from fairseq_reservoir.text.byte_pairs import BytePairs

CODES = b"#version: 0.2\nl o\nlo w\ne r</w>\nn e\nne w</w>\n"


def test_by_hand():
    """l o w e r</w>: "l o" is the first code, then "lo w", then "e r</w>"."""
    cut = BytePairs(CODES, "codes").cut
    assert cut("lower") == ("low@@", "er")
    assert cut("new") == ("new",)
    assert cut("newer") == ("ne@@", "w@@", "er")  # "ne w</w>" only matches at the end of a word
    assert cut("lolo") == ("lo@@", "l@@", "o")  # the last o has </w> and is another symbol
    assert cut("low") == ("lo@@", "w")
    assert cut("x") == ("x",)
    assert cut("Ü") == ("Ü",)


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_fastbpes_codes_have_counts_and_no_version(ends):
    lines = [f"{line} {9 - i}" for i, line in enumerate(CODES.decode().splitlines()[1:])]
    cut = BytePairs((ends.join(lines) + ends).encode(), "codes").cut
    assert cut("lower") == ("low@@", "er") and cut("newer") == ("ne@@", "w@@", "er")


words = st.text("abcdeé\u00e0", min_size=1, max_size=12) | st.text("ab", min_size=1, max_size=40)


@given(
    st.lists(words, min_size=1, max_size=30), st.lists(words, min_size=1, max_size=10), st.sampled_from(["0.1", "0.2"])
)
@settings(deadline=None, max_examples=60)
def test_as_subword_nmt(corpus, line, version):
    """Codes learned on a corpus and applied to other words. Files of version 0.1 have no version line."""
    apply_bpe = pytest.importorskip("subword_nmt.apply_bpe", reason="subword-nmt is not installed")
    from subword_nmt.learn_bpe import learn_bpe

    codes = io.StringIO()
    learn_bpe(io.StringIO("".join(f"{word}\n" for word in ["abc", *corpus] * 2)), codes, 20)
    text = codes.getvalue()
    if version == "0.1":  # the end of a word is a separate symbol in the codes
        text = text.replace("#version: 0.2\n", "").replace("</w>", " </w>").replace("  ", " ")
        text = "".join(f"{one}\n" for one in text.splitlines() if len(one.split(" ")) == 2)
    if not text.strip().removeprefix("#version: 0.2"):
        return  # subword-nmt exits
    theirs = apply_bpe.BPE(io.StringIO(text)).process_line(" ".join(line)).split(" ")
    cut = BytePairs(text.encode(), "codes").cut
    assert [piece for word in line for piece in cut(word)] == theirs


def test_a_very_long_word_ends():
    pieces = BytePairs(CODES, "codes").cut("low" * 20_000)
    assert pieces == ("low@@",) * 19_999 + ("lo@@", "w")  # "lo w" does not match at the end of a word


def test_a_code_is_merged_everywhere_before_an_earlier_one_that_it_makes_possible():
    """ "ab c" is the first code, but the second code "a b" is merged everywhere before it. "x xx" never overlaps itself."""
    assert BytePairs(b"#version: 0.2\nab c\na b\nb c\n", "codes").cut("abcabcd") == ("abc@@", "abc@@", "d")
    assert BytePairs(b"#version: 0.2\nx x\nxx xx\n", "codes").cut("xxxxxy") == ("xxxx@@", "x@@", "y")


@pytest.mark.parametrize("codes", [b"e\n", b"a b c\n", b"a b 1 2\n", b"#version: 0.2\na b\n\x00\n", b"\xff\xfe"])
def test_a_line_that_is_not_a_code_gives_one_line(codes):
    with pytest.raises(InputError, match="^--bpe-codes x: ") as refusal:
        BytePairs(codes, "--bpe-codes x")
    assert "\n" not in str(refusal.value)
