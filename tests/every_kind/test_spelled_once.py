"""Letters only occur in ``plan/kinds.py`` and in the file of their layer, not elsewhere in the package or in lists of tests."""

import ast
import re
from pathlib import Path

import fairseq_reservoir
from fairseq_reservoir.plan.kinds import letters_where

PACKAGE = Path(fairseq_reservoir.__file__).parent
TESTS = Path(__file__).parents[1]


def is_letters(node, least=1):
    """Whether a node is a string of plan letters with a capital. "L", the ordinary layer, does not count."""
    text = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
    return len(text) >= least and set(text) <= set(letters_where()) and not text.islower() and text != "L"


def spelled(path):
    """Lines in which a file has letters, except the layer's own ``@register("F")``."""
    tree = ast.parse(path.read_text())
    registered = {
        id(node.args[0])
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "register" and node.args
    }
    return [f"{path}:{node.lineno}" for node in ast.walk(tree) if is_letters(node) and id(node) not in registered]


def test_the_package_spells_letters_in_one_file():
    # The letters in report/ are those of units and of lines that fairseq-generate prints.
    files = [
        path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "plan" / "kinds.py" and path.parent.name != "report"
    ]
    assert sum((spelled(path) for path in files), []) == []
    assert len(spelled(PACKAGE / "plan" / "kinds.py")) >= len(letters_where()) / 2  # the search does find letters there


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
    assert found == []
