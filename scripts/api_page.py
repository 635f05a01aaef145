"""Write docs/api.md from the docstrings of the public names.

Run this script after a change in one of these docstrings. A test compares its output with the page.
"""

import inspect
import re
import sys
from importlib import import_module
from pathlib import Path
from textwrap import dedent, indent

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "api.md"
HEAD = """\
# From Python

Import only the names on this page. Everything else may change between versions. `scripts/api_page.py` writes the page from the
docstrings, which Python's `help` prints too. `examples/notebook.ipynb` uses the first four names. [A kind of layer of your
own](your-own-kind.md) has an example with the names of `own_kinds`. This module also has the constants `WHOLE` and `NOTHING`.

## Notebooks

Install Jupyter in the environment of `scripts/setup.sh`, and open the notebook in the clone:

    pip install notebook
    jupyter notebook examples/notebook.ipynb

The notebook trains a small model from two arrays of text, shows its slot table, draws a mask and translates. It takes less than a minute.
In an environment of your own, `import fairseq_reservoir` registers the models.
"""
# Heading -> the public names. A class with a tuple has these public methods.
SECTIONS = {
    "Models": [
        ("fairseq_reservoir.api", "freeze"),
        ("fairseq_reservoir.api", "masks"),
        ("fairseq_reservoir.api", "slot_table"),
        ("fairseq_reservoir.api", "load"),
        ("fairseq_reservoir.plan.slot_table", "SlotTable", "records", "to_pandas"),
        ("fairseq_reservoir.plan.slot_table", "Row"),
    ],
    "Exports and translation": [
        ("fairseq_reservoir.checkpoint", "load_translator"),
        ("fairseq_reservoir.checkpoint.translator", "Translator", "translate", "hypotheses"),
        ("fairseq_reservoir.checkpoint.translator", "Hypothesis"),
        ("fairseq_reservoir.checkpoint", "read_state_dict"),
    ],
    "Plans": [
        ("fairseq_reservoir.cli", "plan"),
        ("fairseq_reservoir.plan.layer_plan", "expand"),
        ("fairseq_reservoir.plan.layer_plan", "plan_by_count"),
    ],
    "Kinds of layer of your own": [
        ("fairseq_reservoir.layers.own_kinds", name)
        for name in "register_kind Kind SlotConfig Context Sublayer FeedForward CrossAttention cross_attention".split()
    ],
    "Random tensors": [("fairseq_reservoir.random_tensors.recipe", "Recipe")],
}


def page() -> str:
    """The page in Markdown."""
    parts = [HEAD]
    for heading, names in SECTIONS.items():
        parts.append(f"## {heading}\n")
        for module, name, *methods in names:
            thing = getattr(import_module(module), name)
            parts.append(f"### `{module}.{name}`\n")
            parts.append(described(thing, name))
            for method in methods:
                parts.append(f"#### `{name}.{method}`\n")
                parts.append(described(getattr(thing, method), method))
    return "\n".join(parts)


def described(thing, name: str) -> str:
    """Signature and docstring of a function or a class in Markdown."""
    return f"```python\n{signature(thing, name)}\n```\n\n{markdown(inspect.getdoc(thing) or '')}"


def signature(thing, name: str) -> str:
    """Signature with an argument per line if it is long. Names in annotations have no modules."""
    text = re.sub(r"<factory>|<[^<>]* at 0x[0-9a-f]+>", "...", str(inspect.signature(thing)))
    text = re.sub(r"\b(?:\w+\.)+(?=[A-Za-z_])", "", text)
    text = re.sub(r"(?<!= )'(\w+)'", r"\1", text)  # a name that was quoted because it is defined later
    return f"{name}{text}" if len(text) < 110 else f"{name}{_in_lines(text)}"


def _in_lines(text: str) -> str:
    """Break a signature after each comma that is not in inner brackets."""
    depth, lines, start = 0, [], 1
    for i, character in enumerate(text):
        depth += (character in "([{") - (character in ")]}")
        if depth == 1 and character == ",":
            lines.append(text[start : i + 1].strip())
            start = i + 1
        elif depth == 0:
            return "".join(f"\n    {line}" for line in (*lines, text[start:i].strip() + ",")).join(
                ("(", f"\n){text[i + 1 :]}")
            )
    return text


def markdown(doc: str) -> str:
    """Convert a docstring of Google's style: a list for each section, and blocks of code for examples."""
    parts = []
    for section in re.split(r"\n\n(?=(?:Args|Returns|Raises|Attributes|Example):\n)", doc):
        title, _, body = section.partition(":\n")
        if title not in ("Args", "Returns", "Raises", "Attributes", "Example"):
            parts.append(_plain(section))
        elif title == "Example":
            parts += ["Example:", *map(_example, dedent(body).strip().split("\n\n"))]
        elif title == "Returns":
            parts.append(_plain(f"Returns: {dedent(body)}"))
        else:
            parts += [f"{'Arguments' if title == 'Args' else title}:", _items(dedent(body))]
    return "\n\n".join(parts) + "\n"


def _plain(text: str) -> str:
    return text.replace("``", "`").strip()


def _items(body: str) -> str:
    """List of the entries of a section. Continuation lines are indented."""
    items = []
    for item in re.split(r"\n(?=\S)", body.strip()):
        names, _, about = item.partition(": ")
        about = _plain(re.sub(r"\n +", "\n", about))
        items.append(indent(f"- `{names}`: {about}", "  ")[2:])
    return "\n".join(items)


def _example(part: str) -> str:
    return f"```pycon\n{part}\n```" if part.startswith(">>>") else _plain(part)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    PAGE.write_text(page())
