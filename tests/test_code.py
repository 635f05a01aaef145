"""Limits of the code: the length of functions, and reads of options by a name that is computed."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("fairseq_reservoir", "benchmarks", "scripts", "examples")
# Objects that contain options: arguments of a command line, or a configuration. Also as an attribute, such as ``task.cfg``.
OPTIONS = re.compile(r"(?:^|\.)(?:args|cfg|config|options|flags|known)$")


def nodes(folder, kinds):
    """Pairs (file, node) of the nodes of these kinds in the Python files of a folder."""
    for path in sorted((ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, kinds):
                yield path.relative_to(ROOT), node


@pytest.mark.parametrize("folder", FOLDERS)
def test_functions_have_at_most_60_lines(folder):
    """From ``def`` to the last line, with the docstring. Lines of decorators are not counted."""
    functions = list(nodes(folder, (ast.FunctionDef, ast.AsyncFunctionDef)))
    assert len(functions) > 50
    long = {f"{path}:{node.name}": node.end_lineno - node.lineno + 1 for path, node in functions}
    assert not {name: lines for name, lines in long.items() if lines > 60}


def test_few_options_are_read_with_getattr():
    """Calls ``getattr(x, ...)`` with two or three arguments in the package, if x is named as in ``OPTIONS``.

    With a default, ``getattr`` hides a misspelt option. Read options that may be missing with ``reading.read``. For an argparse namespace
    or a dataclass, use ``vars(x)[name]``.
    """
    calls = [
        f"{path}:{node.lineno} {ast.unparse(node)}"
        for path, node in nodes("fairseq_reservoir", ast.Call)
        if getattr(node.func, "id", "") == "getattr" and OPTIONS.search(ast.unparse(node.args[0]))
    ]
    assert 0 < len(calls) <= 20, calls
