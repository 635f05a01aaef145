"""Write the table of layer kinds into docs/layers.md, and into any other page that has its first line.

Run this script after a change in fairseq_reservoir/plan/kinds.py. A test compares its output with the pages.
"""

import re
from pathlib import Path

from fairseq_reservoir.plan import kinds

ROOT = Path(__file__).parents[1]
HEAD = ("letter", "layer", "frozen", "in a decoder", "LayerNorm", "widths", "`--reservoir-type`")
FIRST_LINE = f"| {' | '.join(HEAD)} |\n"
_TABLE = re.compile(re.escape(FIRST_LINE) + r"(?:\|.*\n)*")


def table() -> str:
    """The table in Markdown, with one line for each kind of the package."""
    lines = [HEAD, ("---",) * len(HEAD), *(cells(kind) for kind in kinds.all_kinds() if not kind.registered_by)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def cells(kind) -> tuple[str, ...]:
    """Cells of the line of a kind."""
    letters = " ".join(f"`{letter}`" for letter in kind.letters)
    about = f"{kind.name}: {kind.about}"
    part = "the whole layer" if kind.freezes == kinds.WHOLE else f"`{' '.join(kind.freezes)}`, the rest is trained"
    frozen = f"`{kind.frozen_letter}`: {part}" if kind.frozen_letter else "nothing"
    stands = [f"not in an encoder: {kind.refused['encoder']}"] if "encoder" in kind.refused else []
    stands += [
        f"refused: {kind.refused['decoder']}"
        if "decoder" in kind.refused
        else "sees the source"
        if kind.sees_source
        else "does not see the source"
    ]
    norm = "`--reservoir-norm`" if kind.own_norm else "the model's"
    needs = {"even": kind.even_width, "a multiple of the heads": kind.heads_divide}
    needs["`--reservoir-kernel-sizes`"] = kind.kernel_sizes
    sizes = ", ".join(word for word, needed in needs.items() if needed) or "any"
    return (
        letters,
        about,
        frozen,
        "; ".join(stands),
        norm,
        sizes,
        f"`{kind.reservoir_type}`" if kind.reservoir_type else "none",
    )


def pages():
    """Yield each page of the documentation that has the table, with its text."""
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        if FIRST_LINE in (text := path.read_text()):
            yield path, text


def written(text: str) -> str:
    """Return the text of a page with an updated table."""
    return _TABLE.sub(lambda _: table(), text)


if __name__ == "__main__":
    for path, text in pages():
        path.write_text(written(text))
