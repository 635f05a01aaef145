"""Plain English: the first word of module docstrings, and the density of hard turns of phrase in each package and folder."""

import ast
from pathlib import Path

import pytest

from tests.support.prose import measure, texts_in

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "fairseq_reservoir"
QUESTIONS = {"What", "Whatever", "Which", "How", "Whether", "Where", "When"}
# Hard turns of phrase per 1,000 words that are allowed; peft has 2.1, torchtune 1.9, joeynmt 1.6.
LIMIT = 5
SUFFIXES = (".py", ".sh", ".md")


def begins_plainly(source: str) -> bool:
    """Whether a module has a docstring that does not start with an indirect question."""
    words = (ast.get_docstring(ast.parse(source)) or "").split()
    return bool(words) and words[0].strip("\"'`,:") not in QUESTIONS


def files_of(name: str) -> list[Path]:
    """Files of a folder and of all folders below. For the package and for tests, only files in the folder itself."""
    folder = ROOT / name
    if folder.is_file():
        return [folder]
    found = folder.iterdir() if name in ("fairseq_reservoir", "tests") else folder.rglob("*")
    return sorted(path for path in found if path.suffix in SUFFIXES)


def places() -> list[str]:
    """Each package, each folder of tests, and all other folders and pages with prose."""
    folders = [path for above in (PACKAGE, ROOT / "tests") for path in sorted(above.iterdir()) if path.is_dir()]
    names = [str(path.relative_to(ROOT)) for path in folders if list(path.rglob("*.py"))]
    pages = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md"]
    return ["fairseq_reservoir", *names, "tests", "scripts", "benchmarks", "examples", "docs", *pages]


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_docstring_of_a_module(path):
    assert begins_plainly(path.read_text())


@pytest.mark.parametrize(
    "source", ["", "import ast", '"""What is frozen."""', '"""\nHow\nto."""', '"""Whether: so."""']
)
def test_refused_docstrings(source):
    assert not begins_plainly(source)


@pytest.mark.parametrize("name", places())
def test_density_of_hard_turns_of_phrase(name):
    prose = measure(files_of(name), messages=not name.startswith("tests"))
    found = "\n".join(f"{path.relative_to(ROOT)}: ...{text}..." for path, text in prose.hard)
    assert prose.words > 0
    assert prose.density <= LIMIT, (
        f"{name}: {prose.density:.1f} per 1,000 words, at most {LIMIT} are allowed; rewrite these\n{found}"
    )


@pytest.mark.parametrize(
    "text",
    [
        "What is kept of a batch.",
        "Words. Of a list, the first.",
        "It is no list.",
        "Training goes on.",
        "The test says so.",
        "Several processes train.",
    ],
)
def test_each_pattern_is_found_once(text, tmp_path):
    path = tmp_path / "page.md"
    path.write_text(text)
    assert [found for _, found in measure([path]).hard] == [text]


def test_density_by_hand(tmp_path):
    """5 words of docstrings, 4 of comments and 4 of a message with two hits: 1000 * 2 / 9, and 1000 * 3 / 13 with messages."""
    path = tmp_path / "module.py"
    path.write_text(
        '"""Return what is kept. Briefly."""\n\nx = 1  # it is no list\ny = "no, "\nz = "this one says so"\n'
    )
    assert measure([path]).density == pytest.approx(1000 * 2 / 9)
    assert measure([path], messages=True).density == pytest.approx(1000 * 3 / 13)


def test_texts_of_shell_and_markdown():
    assert list(texts_in(".sh", "#!/bin/sh\n# One comment.\necho 1  # not read\n")) == ["One comment."]
    (page,) = texts_in(
        ".md", "Text with `code` and [a link](url).\n\n    an indented block\n\n```sh\nls\n```\n| a | table |\n"
    )
    assert page.split() == ["Text", "with", "and", "[a", "link."]
