"""Text files of UTF-8 lines. Only a line feed ends a line."""

import contextlib
import re
from itertools import islice


def read(path):
    """Yield the lines of ``path`` without their line feeds. Other line separators of Python do not end a line."""
    with open(path, encoding="utf-8", errors="replace", newline="\n") as file:
        for line in file:
            yield line.removesuffix("\n")


def write(path, lines):
    """Write ``lines`` and return their number."""
    count = 0
    with open(path, "w", encoding="utf-8", newline="\n") as file:
        for count, line in enumerate(lines, 1):
            file.write(line + "\n")
    return count


def write_pairs(folder, name, languages, pairs):
    """Write ``folder/name.LANGUAGE`` for both ``languages`` and return the number of pairs."""
    count = 0
    with contextlib.ExitStack() as stack:
        paths = [folder / f"{name}.{language}" for language in languages]
        files = [stack.enter_context(open(path, "w", encoding="utf-8", newline="\n")) for path in paths]
        for count, pair in enumerate(pairs, 1):
            for file, line in zip(files, pair, strict=True):
                file.write(line + "\n")
    return count


def blocks(lines, size):
    """Yield lists of up to ``size`` lines."""
    lines = iter(lines)
    while block := list(islice(lines, size)):
        yield block


def segments(path):
    """Yield the texts of the ``<seg id="...">`` lines of an SGML or XML file. As in fairseq's recipes, ’ becomes '."""
    for line in read(path):
        if "<seg id" in line:
            line = re.sub(r'<seg id="[0-9]*">\s*', "", line)
            yield re.sub(r"\s*</seg>\s*", "", line).replace("’", "'")
