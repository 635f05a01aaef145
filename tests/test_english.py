"""Every module of the package begins with a docstring whose subject is the module, no question that a reader must answer."""

import ast
from pathlib import Path

import pytest

import fairseq_reservoir

PACKAGE = Path(fairseq_reservoir.__file__).parent
QUESTIONS = {"What", "Whatever", "Which", "How", "Whether", "Where", "When"}


def begins_plainly(source: str) -> bool:
    """Whether a module says something of itself, and not as an indirect question."""
    words = (ast.get_docstring(ast.parse(source)) or "").split()
    return bool(words) and words[0].strip("\"'`,:") not in QUESTIONS


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_docstring_of_a_module(path):
    assert begins_plainly(path.read_text())


@pytest.mark.parametrize(
    "source", ["", "import ast", '"""What is frozen."""', '"""\nHow\nto."""', '"""Whether: so."""']
)
def test_what_is_refused(source):
    assert not begins_plainly(source)
