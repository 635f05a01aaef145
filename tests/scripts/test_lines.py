"""Steps of preparing lines: Moses' tokenizer and normaliser, cleaning, splits and pieces."""

import pytest
from prepare import bpe, moses
from prepare.console import InputError
from prepare.pairs import clean, every
from prepare.parallel import map_lines
from prepare.text import read, segments, write

from tests.support.miniature import sentences, sgml


# Output of Moses' tokenizer.perl of 2020 for these lines.
@pytest.mark.parametrize(
    "language, aggressive, line, expected",
    [
        ("en", False, "He lives in the U.S.", "He lives in the U.S ."),
        ("en", False, "In the U.S. he has 1,000, e.g. Mr. Smith...", "In the U.S. he has 1,000 , e.g. Mr. Smith ..."),
        (
            "en",
            False,
            '(it\'s "so") [x|y]&<z>',
            "( it &apos;s &quot; so &quot; ) &#91; x &#124; y &#93; &amp; &lt; z &gt;",
        ),
        ("en", True, "well-known", "well @-@ known"),
        ("en", False, "'Hello.'", "&apos;Hello . &apos;"),
        ("en", False, "12,", "12 ,"),
        ("de", False, "z. B. Dr. Meier's Hund.", "z. B. Dr. Meier &apos; s Hund ."),
        ("tr", True, "İzmir'de 3-5 kişi", "İzmir &apos; de 3 @-@ 5 kişi"),
        ("en", False, "  ", ""),
    ],
)
def test_tokens_are_those_of_moses(language, aggressive, line, expected):
    assert moses.tokenizer(language, aggressive)(line) == expected


# Output of normalize-punctuation.perl and remove-non-printing-char.perl of 2020, without spaces at the ends.
@pytest.mark.parametrize(
    "language, line, expected",
    [
        ("de", "„Ja.“", '"Ja".'),
        ("en", "“Yes”, he said ( twice ) .", '"Yes," he said (twice).'),
        ("de", "1\u00a0000 % – ‚so‘", "1,000% - 'so'"),
        ("tr", "“Evet,” 5\u00a0000", '"Evet", 5.000'),
        ("en", "soft\u00adhyphen\u200b\ttab", "soft hyphen  tab"),
    ],
)
def test_punctuation_is_that_of_moses(language, line, expected):
    assert moses.normalizer(language)(line) == expected


def test_lower_case_is_that_of_perl():
    assert moses.lowercase("ÄÖ ΟΔΟΣ") == "äö οδοσ"


def test_clean_keeps_what_moses_keeps():
    def words(count):
        return " ".join(["x"] * count)

    kept = [("a b", "c d e"), (words(175), words(117)), ("x" * 1000, "y")]
    gone = [("a b", "c d e f"), (words(176), words(176)), ("", ""), (" ", "a"), ("x" * 1001, "y"), ("a", "b c")]
    assert (
        list(clean([*kept, *gone, (" a \xa0 b", "c")], 1, 175, 1.5)) == kept
    )  # 3 / 2 = 1.5, 175 / 117 = 1.4957, 2 / 1 = 2
    assert list(clean([("a  b ", "c\td")], 1, 2, 1.5)) == [("a b", "c d")]


def test_every_23rd_pair_counted_from_one():
    assert list(every(range(1, 70), 23, True)) == [23, 46, 69]
    assert list(every(range(1, 25), 23, False)) == [*range(1, 23), 24]


def test_only_a_line_feed_ends_a_line(tmp_path):
    lines = ["a\x85b\u2028c\x0c", "", "d\r"]
    assert write(tmp_path / "text", lines) == 3
    assert list(read(tmp_path / "text")) == lines


def test_segments(tmp_path):
    (tmp_path / "test.sgm").write_text(sgml(["It’s", " so  far "]), encoding="utf-8")
    assert list(segments(tmp_path / "test.sgm")) == ["It's", "so  far"]


def test_processes_keep_the_order():
    lines = [str(number) for number in range(5000)]
    for jobs in (1, 2):
        assert list(map_lines(doubler, lines, jobs)) == [line * 2 for line in lines]


def doubler():
    return lambda line: line * 2


@pytest.mark.parametrize("kind", bpe.KINDS)
def test_pieces_join_to_the_line(kind, tmp_path):
    for module, package in bpe.KINDS[kind].items():
        pytest.importorskip(module, reason=f"{package} is not installed")
    lines = [moses.tokenizer("de")(line) for line in sentences("de", 60)]
    write(tmp_path / "train", lines)
    model = tmp_path / bpe.MODEL[kind]
    bpe.learn(kind, 80, [tmp_path / "train"], model)
    bpe.apply(kind, model, tmp_path / "train", tmp_path / "pieces", jobs=1)
    pieces = list(read(tmp_path / "pieces"))
    if kind == "sentencepiece":
        assert [line.replace(" ", "").replace("▁", " ").strip() for line in pieces] == lines
    else:
        assert [line.replace("@@ ", "") for line in pieces] == lines
    assert len(" ".join(lines).split()) < len(" ".join(pieces).split()) < len("".join(lines))
    if kind == "fastbpe":  # the same pieces, in C++
        bpe.learn("subword_nmt", 80, [tmp_path / "train"], tmp_path / "subword")
        bpe.apply("subword_nmt", tmp_path / "subword", tmp_path / "train", tmp_path / "other", jobs=1)
        assert list(read(tmp_path / "other")) == pieces


def test_learned_merges_by_hand(tmp_path):
    """aaab twice, ab once: (a, a) occurs 4 times and (a, b) 3 times. After merging aa, (aa, a) occurs 2 times and (a, b) still 3 times."""
    pytest.importorskip("subword_nmt", reason="subword-nmt is not installed")
    write(tmp_path / "text", ["aaab ab", "aaab"])
    bpe.learn("subword_nmt", 2, [tmp_path / "text"], tmp_path / "codes")
    assert list(read(tmp_path / "codes"))[1:] == ["a a", "a b</w>"]
    assert bpe.segmenter("subword_nmt", tmp_path / "codes")("aaab ab b") == "aa@@ ab ab b"
    bpe.learn("fastbpe", 2, [tmp_path / "text"], tmp_path / "codes")
    assert list(read(tmp_path / "codes")) == ["a a 0", "a b</w> 0"]


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr("prepare.console.find_spec", lambda module: None)
    with pytest.raises(
        InputError, match="^--bpe fastbpe needs fastBPE and subword-nmt: pip install fastBPE subword-nmt$"
    ):
        bpe.check("fastbpe")
    with pytest.raises(InputError, match="^the tokenizer needs sacremoses: pip install sacremoses$"):
        moses.check()


@pytest.mark.parametrize("kind", ["subword_nmt", "fastbpe"])
def test_a_unit_may_hold_a_separator_that_ends_no_line(kind, tmp_path):
    """U+2028 and U+0085 end a line in Python's splitlines(). subword-nmt learns them as letters."""
    pytest.importorskip("subword_nmt")
    write(tmp_path / "text", ["a\u2028b a\u2028b c\x85d"] * 20)
    bpe.learn(kind, 4, [tmp_path / "text"], tmp_path / "codes")
    merges = [line.split(" ") for line in read(tmp_path / "codes") if not line.startswith("#version")]
    assert [len(merge) for merge in merges] == [2 + (kind == "fastbpe")] * 4
    assert any("\u2028" in unit for unit in merges[0] + merges[1])
    if kind == "subword_nmt":
        assert bpe.segmenter(kind, tmp_path / "codes")("a\u2028b") == "a\u2028b"
