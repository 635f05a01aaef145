"""``--help`` of the commands that build models: short groups, each flag once, fairseq's own last."""

import re
from itertools import groupby

import pytest

from fairseq_reservoir import cli


@pytest.fixture(params=["plan", "size"])
def groups(request, capsys):
    """Return (title, lines below it) for every group. A title starts at the margin and ends with a colon."""
    with pytest.raises(SystemExit):
        cli.main([request.param, "--help"])
    lines = capsys.readouterr().out.splitlines()
    titles = [i for i, line in enumerate(lines) if re.match(r"\S.*:$", line)]
    return [
        (lines[begin], [line for line in lines[begin + 1 : end] if line.strip()])
        for begin, end in zip(titles, [*titles[1:], len(lines)], strict=True)
    ]


def test_no_flag_twice(groups):
    flags = [
        flag
        for title, lines in groups
        for line in lines
        for flag in (
            line.split() if title.startswith("fairseq's own") else re.findall(r"^  (?:-\w, )?(--[a-z-]+)", line)
        )
    ]
    assert {"--user-dir", "--reservoir-encoder", "--freeze", "--mask-pin", "--backskip", "--encoder-layers"} <= set(
        flags
    )
    assert len(flags) == len(set(flags))


def test_order(groups):
    first_words = [re.match(r"[\w']+", title).group() for title, _ in groups]
    order = [word for word, _ in groupby(first_words)]
    assert order[order.index("options") :] == [
        "options",
        "plan",
        "layers",
        "freezing",
        "masks",
        "training",
        "inference",
        "fairseq's",
    ]


def test_a_group_fits_a_screen(groups):
    assert {title: len(lines) for title, lines in groups if not 1 <= len(lines) + 1 <= 20} == {}
    begin = next(i for i, (title, _) in enumerate(groups) if title.startswith("plan"))
    assert max(len(line) for title, lines in groups[begin:] for line in (title, *lines)) <= 100
