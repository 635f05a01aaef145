"""Density of hard turns of phrase in docstrings, comments and Markdown pages. CONTRIBUTING.md has the rules of style."""

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

# Each pattern is a habit that makes readers read a sentence twice. Well-read projects have 1 to 2 per 1,000 words in all.
PATTERNS = {
    "a description in place of a noun": r"\b(?:what|whatever|whose|of which|those that|that which)\b",
    "a sentence that starts with 'Of'": r"(?:^|[.;:] )Of (?!course)",
    "'is no' in place of 'is not a'": r"\b(?:is|are|was|be) (?:no|none)\b",
    "'go on', 'anew', 'thus'": r"\b(?:go|goes|went|going) on\b|\banew\b|\bthus\b",
    "code that speaks or looks": r"\b(?:says?|said|told|tells?|asked|asks?|looks?|looked|knows?|known)\b",
    "processes in place of ranks": r"\b(?:several|other) processes\b",
}
_HARD = re.compile("|".join(PATTERNS.values()), re.IGNORECASE | re.MULTILINE)


@dataclass
class Prose:
    """Number of words in some files, and the places of hard turns of phrase as (path, text around the place)."""

    words: int
    hard: list[tuple[Path, str]]

    @property
    def density(self) -> float:
        """Hard turns of phrase per 1,000 words."""
        return 1000 * len(self.hard) / max(1, self.words)


def measure(paths: Iterable[Path], messages: bool = False) -> Prose:
    """Count words and hard turns of phrase in docstrings, comments and Markdown text of files.

    Args:
        paths: files of Python, of shell or of Markdown.
        messages: also count string constants of four words or more in Python files: messages, help texts and log lines.
    """
    found = Prose(0, [])
    for path in paths:
        source = path.read_text(encoding="utf-8")
        for text in [
            *texts_in(path.suffix, source),
            *(messages_in(source) if messages and path.suffix == ".py" else ()),
        ]:
            found.words += len(re.findall(r"[A-Za-z']+", text))
            found.hard += [(path, _around(text, match)) for match in _HARD.finditer(text)]
    return found


def texts_in(suffix: str, source: str) -> Iterator[str]:
    """Yield the texts of a file: docstrings and comments of Python, comments of shell, Markdown without code and tables."""
    if suffix == ".py":
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and (docstring := ast.get_docstring(node)):
                yield docstring
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type == tokenize.COMMENT and not re.search(r"noqa|fmt:|type: ignore", token.string):
                yield token.string.lstrip("# ")
    elif suffix == ".sh":
        for line in source.splitlines():
            if line.lstrip().startswith("#") and not line.startswith("#!"):
                yield line.lstrip("# ")
    elif suffix == ".md":
        text = re.sub(r"(?ms)^(```|~~~).*?^\1", "", source)
        text = re.sub(r"(?m)^( {4}|\t|\|).*$", "", text)
        yield re.sub(r"`[^`]*`|\]\([^)]*\)", "", text)


def messages_in(source: str) -> Iterator[str]:
    """Yield the string constants of Python code with four words or more, except docstrings."""
    tree = ast.parse(source)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value.split()) > 3:
            if id(node) not in docstrings:
                yield node.value


def _around(text: str, match: re.Match[str]) -> str:
    part = text[max(0, match.start() - 60) : match.end() + 60]
    return " ".join(part.split())
