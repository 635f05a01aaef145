"""Splitting of long lines: no token is lost, and parts end at allowed positions."""

from hypothesis import given, strategies as st

from fairseq_reservoir.text.long_lines import split_long_line


def begins(words, i):
    return words[i].startswith("_")


def test_by_hand():
    assert split_long_line(["_a", "b", "_c"], 3, begins) == [["_a", "b", "_c"]]
    # Full after "d". "_c" is the last word start in the second half.
    assert split_long_line(["_a", "b", "_c", "d", "e"], 4, begins) == [["_a", "b", "_c", "d"], ["e"]]
    assert split_long_line(["_a", "b", "x", "_c", "d"], 4, begins) == [["_a", "b", "x"], ["_c", "d"]]
    # A sentence end is preferred to a word end.
    assert split_long_line("_a b . _c _d e".split(), 5, begins) == [["_a", "b", "."], ["_c", "_d", "e"]]
    assert split_long_line(["b", "b", "b"], 1, begins) == [["b"], ["b"], ["b"]]


def test_a_quote_that_moses_writes_with_a_semicolon_ends_no_sentence():
    assert split_long_line("_l&apos; _a _b _l&apos; _c".split(), 4, begins) == [
        ["_l&apos;", "_a", "_b", "_l&apos;"],
        ["_c"],
    ]
    assert split_long_line("_a _b _&apo@@ s; _c _d _e".split(), 5, begins)[0] == ["_a", "_b", "_&apo@@", "s;", "_c"]
    assert split_long_line("_a _b _c ; _d _e".split(), 5, begins)[0] == ["_a", "_b", "_c", ";"]
    assert split_long_line("_a _R & _D ; _e _f".split(), 6, begins)[0] == "_a _R & _D ;".split()


@given(st.lists(st.sampled_from(["_a", "b", ".", "_c."]), max_size=60), st.integers(1, 12))
def test_nothing_is_lost_and_none_is_too_long(words, most):
    parts = split_long_line(words, most, begins)
    assert sum(parts, []) == words
    assert all(0 < len(part) <= most for part in parts) or words == []
    assert len(parts) <= 2 * len(words) // most + 2
