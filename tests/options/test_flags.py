"""A flag states its rules where it is defined, and one check returns every error."""

from dataclasses import dataclass, replace
from typing import Optional

import pytest

from fairseq_reservoir.errors import InputError
from fairseq_reservoir.options.flags import check, errors, option


@dataclass
class Options:
    share: float = option(0.5, "a share", "SHARE", above=0, at_most=1)
    kind: str = option("one", "a kind", "KIND", choices=("one", "two"))
    cache: Optional[str] = option(None, "a file", "FILE")
    size: int = option(8, "of the cache", "N", at_least=1, needs=("cache", "share"))
    random: bool = option(False, "random", excludes={"cache": "which has an order; remove one of them"})


@pytest.mark.parametrize(
    "changes, found",
    [
        ({}, []),
        ({"share": 0.0}, ["--share 0: must be greater than 0 and at most 1"]),
        ({"share": float("nan")}, ["--share nan: must be greater than 0 and at most 1"]),
        ({"kind": "three"}, ["--kind 'three': choose from one, two"]),
        ({"kind": None}, ["--kind None: choose from one, two"]),
        ({"size": 9}, []),
        ({"size": 9, "cache": "", "share": 1.0}, []),
        ({"random": True}, []),
        (
            {"random": True, "cache": "a"},
            ["--random: cannot be combined with --cache a, which has an order; remove one of them"],
        ),
        ({"size": 0, "kind": "x"}, ["--kind 'x': choose from one, two", "--size 0: must be at least 1"]),
    ],
)
def test_errors(changes, found):
    assert errors(replace(Options(), **changes), Options) == found


def test_a_need_is_met_by_any_of_its_options():
    assert errors(replace(Options(), size=9, share=None), Options) == [
        "--size 9: has no effect without --cache or --share"
    ]


def test_the_first_three_errors_are_one_line():
    options = Options(share=2.0, kind="x", cache="a", size=0, random=True)
    with pytest.raises(InputError, match=r"^--share 2: .*; --kind 'x': .*; --size 0: must be at least 1; and 1 more$"):
        check(options, Options)
