"""Packages import only what docs/package-layout.md allows, and imports between packages have no cycle."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "fairseq_reservoir"
LAYOUT = (ROOT / "docs" / "package-layout.md").read_text()
ROOMS = sorted(
    {path.relative_to(PACKAGE).parts[0].removesuffix(".py") for path in PACKAGE.rglob("*.py")} - {"config"}
)  # YAML files


@cache
def allowed():
    """Package -> packages that it may import, from the table of the page."""
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|.*\|([^|]*)\|$", LAYOUT, flags=re.MULTILINE)
    return {name: set(re.findall(r"\w+", others)) for names, others in rows for name in re.findall(r"`(\w+)`", names)}


@cache
def imports(room):
    """Other packages that the modules of a package import, at any place in a file."""
    path = PACKAGE / room
    found = set()
    for file in path.rglob("*.py") if path.is_dir() else [path.with_suffix(".py")]:
        package = file.relative_to(PACKAGE).parts[:-1]
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom) and node.level:
                base = [*package[: len(package) - node.level + 1], *filter(None, (node.module or "").split("."))]
                names = {alias.name for alias in node.names}
                # a name that is not a package belongs to __init__
                found |= {base[0]} if base else {name if name in ROOMS else "__init__" for name in names}
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                names = [node.module] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
                found |= {name.split(".")[1] for name in names if name.startswith(f"{PACKAGE.name}.")}
    return found & set(ROOMS) - {room}


def test_the_table_has_every_room():
    assert set(allowed()) == set(ROOMS)
    assert len(ROOMS) <= 20
    assert sum(len(imports(room)) for room in ROOMS) <= 70


@pytest.mark.parametrize("room", ROOMS)
def test_a_package_imports_only_what_the_table_allows(room):
    assert imports(room) <= allowed()[room]


def test_nobody_is_above_itself():
    """Packages can be ordered in levels, with imports only from lower levels. There are as many levels as in the longest chain."""

    def floor(room, above=()):
        assert room not in above, f"a circle: {' -> '.join((*above, room))}"
        return 1 + max((floor(below, (*above, room)) for below in imports(room)), default=0)

    assert max(map(floor, ROOMS)) <= 10


@pytest.mark.parametrize("room", ["plan", "studies", "errors", "files", "options"])
def test_these_need_no_torch(room):
    path = PACKAGE / room
    files = list(path.rglob("*.py")) if path.is_dir() else [path.with_suffix(".py")]
    for file in (file for file in files if file.parent.name != "for_fairseq"):
        assert not re.search(r"^\s*(?:import|from) (?:torch|fairseq)\b", file.read_text(), flags=re.MULTILINE), file


def test_rooms_have_their_tests():
    """Tests of a package are in the folder of its name; those of a single module are next to the folders."""
    tests = {path.name for path in (ROOT / "tests").iterdir()}
    for room in ROOMS:
        if (PACKAGE / room).is_dir():
            assert room in tests, room
