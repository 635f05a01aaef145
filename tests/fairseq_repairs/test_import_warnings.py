"""Only two kinds of warnings are ignored while fairseq is imported."""

import sys
import warnings
from pathlib import Path

import pytest

from fairseq_reservoir.fairseq_repairs import import_warnings

JIT = "`torch.jit.script` is deprecated. Please switch to `torch.compile` or `torch.export`."


@pytest.fixture
def seen():
    """Return a function that lists the file name and the category of each warning that was not ignored."""
    with warnings.catch_warnings(record=True) as passed:
        warnings.simplefilter("always")
        yield lambda: [(Path(each.filename).name, each.category.__name__) for each in passed]


def warn():
    """Issue a warning of each kind from fairseq, from torch and from a user's file."""
    for file, module in (
        ("/a/fairseq/models/wav2vec/wav2vec2_asr.py", None),
        ("/a/torch/jit/_script.py", "torch.jit._script"),
        ("/a/mine.py", "mine"),
    ):
        location = {"filename": file, "lineno": 1} | ({"module": module} if module else {})
        warnings.warn_explicit("invalid escape sequence '\\d'", SyntaxWarning, **location)
        warnings.warn_explicit(JIT, FutureWarning, **location)
        warnings.warn_explicit("`optimize` is deprecated", FutureWarning, **location)


EVERY = [
    (file, kind)
    for file in ("wav2vec2_asr.py", "_script.py", "mine.py")
    for kind in ("SyntaxWarning", "FutureWarning", "FutureWarning")
]


def test_only_two_kinds_are_ignored(seen):
    with import_warnings.ignored():
        warn()
    # Ignored: the first warning from fairseq's file, and the second from torch's file.
    assert seen() == EVERY[1:4] + EVERY[5:]


def test_filters_are_restored_and_filters_of_the_body_are_kept(seen):
    before = list(warnings.filters)
    with import_warnings.ignored():
        warnings.filterwarnings("ignore", "of the body")
    assert warnings.filters[1:] == before and "of the body" in str(warnings.filters[0])
    warn()
    assert seen() == EVERY


@pytest.mark.skipif(sys.version_info < (3, 12), reason="Python 3.11 does not warn")
def test_warnings_of_the_compiler(seen):
    with import_warnings.ignored():
        for file in ("/a/fairseq/models/wav2vec/wav2vec2_asr.py", "/a/mine.py"):
            compile('r = "\\d"\n', file, "exec")
    assert seen() == [("mine.py", "SyntaxWarning")]
