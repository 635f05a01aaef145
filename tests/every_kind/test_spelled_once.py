"""Letters only occur in ``plan/kinds.py`` and in the file of their layer, not elsewhere in the package or in lists of tests."""

import ast
import re
from pathlib import Path

import fairseq_reservoir
from fairseq_reservoir.plan.kinds import letters_where

PACKAGE = Path(fairseq_reservoir.__file__).parent
TESTS = Path(__file__).parents[1]
PAGE = Path(__file__).parents[2] / "docs" / "adding-a-kind.md"


def is_letters(node, least=1, more=""):
    """Whether a node is a string of plan letters, or of ``more``, with a capital. "L", the ordinary layer, does not count."""
    text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
    return len(text) >= least and set(text) <= {*letters_where(), *more} and not text.islower() and text != "L"


def spelled(path, more=""):
    """Lines in which a file has letters, except the layer's own ``@register("F")``."""
    tree = ast.parse(path.read_text())
    registered = {
        id(node.args[0])
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "register" and node.args
    }
    return [
        f"{path}:{node.lineno}" for node in ast.walk(tree) if is_letters(node, more=more) and id(node) not in registered
    ]


def package_files():
    """Files that must not contain letters. Those in report/ are letters of units and of lines that fairseq-generate prints."""
    return [
        path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "plan" / "kinds.py" and path.parent.name != "report"
    ]


def test_the_package_spells_letters_in_one_file():
    found = sum((spelled(path) for path in package_files()), [])
    assert not found, (
        f"{found}: strings of plan letters. Select letters with plan.kinds.letters_where. If the string is not a plan letter, give your "
        "kind another letter; docs/adding-a-kind.md lists unused ones"
    )
    assert len(spelled(PACKAGE / "plan" / "kinds.py")) >= len(letters_where()) / 2  # the search does find letters there


def test_the_letters_that_the_page_offers_are_unused():
    sentence = re.search(r"Choose one of the letters ([A-Z, and\n]+)\.", PAGE.read_text())
    letters = set(re.findall(r"\b[A-Z]\b", sentence[1])) - set(letters_where())
    assert letters
    some = [path for path in package_files() if spelled(path, more=letters)]
    found = {letter: sum((spelled(path, more=letter + letter.lower()) for path in some), []) for letter in letters}
    used = {letter: lines for letter, lines in found.items() if lines}
    assert not used, f"{used}: strings of letters that {PAGE.name} offers; remove these letters from the page"


def test_no_test_runs_over_letters_of_its_own():
    found = []
    for path in TESTS.rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not (
                isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "parametrize" and len(node.args) > 1
            ):
                continue
            names = re.split(r"\W+", str(getattr(node.args[0], "value", "")))
            lists = isinstance(node.args[1], (ast.List, ast.Tuple)) and [is_letters(item) for item in node.args[1].elts]
            if "letter" in names and (is_letters(node.args[1], 2) or any(lists or ())):
                found.append(f"{path}:{node.lineno}")
    assert not found, f"{found}: take the letters from plan.kinds.letters_where"
