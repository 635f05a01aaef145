"""Draw texts for a reader who has not seen them: 20 docstrings and 20 messages of the package, and two pages. ``draw_prose.py SEED``

The reader marks each sentence that had to be read twice. The goal is at most one in twenty.
"""

import ast
import random
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def messages(source: str) -> list[str]:
    """String constants of 8 to 80 words, with ``{expression}`` for each value of an f-string, except docstrings."""
    tree = ast.parse(source)
    left_out = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    found = []
    for node in ast.walk(tree):
        if id(node) in left_out:
            continue
        if isinstance(node, ast.JoinedStr):
            left_out.update(id(part) for part in node.values)
            found.append("".join(_text_of(part) for part in node.values))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.append(node.value)
    return [text for text in found if 8 <= len(text.split()) <= 80]


def _text_of(part: ast.expr) -> str:
    return str(part.value) if isinstance(part, ast.Constant) else "{" + ast.unparse(part.value) + "}"


def docstrings(path: Path) -> list[tuple[str, str]]:
    """Each docstring of a module with its place."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and (text := ast.get_docstring(node)):
            name = getattr(node, "name", "the module")
            found.append((f"{path.relative_to(ROOT)}, {name}", text))
    return found


def main(seed: str) -> None:
    draw = random.Random(seed)
    modules = sorted((ROOT / "fairseq_reservoir").rglob("*.py"))
    pages = sorted(
        path for name in ("docs", "examples", "benchmarks") for path in (ROOT / name).rglob("*.md") if path.is_file()
    )
    spoken = [(str(path.relative_to(ROOT)), text) for path in modules for text in messages(path.read_text())]
    for kind, texts in (("docstring", [each for path in modules for each in docstrings(path)]), ("message", spoken)):
        for place, text in draw.sample(texts, 20):
            print(f"--- {kind}: {place}\n{text}\n")
    for path in draw.sample(pages, 2):
        print(f"--- page: {path.relative_to(ROOT)}\n{path.read_text()}\n")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: draw_prose.py SEED")
    main(sys.argv[1])
