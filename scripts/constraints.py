"""The exact versions that scripts/setup.sh installs: prints parts of scripts/constraints.txt for pip, and makes that file.

    constraints.py tools            tools that build packages, and the pure-Python packages that torch needs
    constraints.py fairseq          fairseq alone
    constraints.py rest [EXTRA,..]  every other package of the plugin, of fairseq and of these extras
    constraints.py plain            all of them, without hashes
    constraints.py ranges [EXTRA,..]  the requirements of pyproject.toml, fairseq left out
    constraints.py make             makes the file again, with the newest versions that pyproject.toml allows; needs `pip install uv`

torch is not in the file, because its wheels differ between CPU and GPU and so do their hashes. setup.sh names its version.
"""

import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILE = Path(__file__).with_name("constraints.txt")
MAKE = "python scripts/constraints.py make"
TOOLS = ["cython<4", "setuptools", "wheel", "packaging"]
# fairseq asks for torchaudio, which setup.sh leaves out. The rest comes with torch.
LEFT_OUT = re.compile(r"(torch|torchaudio|triton|(nvidia|cuda)-.*)$")
COMPILE = (
    "uv pip compile --quiet --universal --generate-hashes --annotation-style line --no-header --python-version 3.11"
)


def name_of(requirement):
    """The normalised name of a package in a requirement such as ``Sub_word[x]>=1``."""
    return re.sub(r"[-_.]+", "-", re.match(r"[\w.-]+", requirement)[0]).lower()


def requirements(extras=None):
    """The requirements in pyproject.toml, with those of ``extras``; of all extras if None."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = project["optional-dependencies"]
    lists = [project["dependencies"], *(optional[extra] for extra in (optional if extras is None else extras))]
    return [requirement for each in lists for requirement in each]


def read_blocks(text):
    """The (name, text, parents) of each package in a file of `uv pip compile`; two for a name with two versions."""
    blocks = []
    for block in re.findall(r"^\S.*==.*\n(?:[ ].*\n)*", text, re.MULTILINE):
        parents = re.findall(r"[\w.-]+", block.partition("# via ")[2])
        blocks.append((name_of(block), block, {name_of(parent) for parent in parents}))
    return blocks


def closure(blocks, names):
    """``names`` and the names of all packages that they need."""
    found = {*names}
    while more := {name for name, _, parents in blocks if parents & found} - found:
        found |= more
    return found


def picked(part, extras):
    """The text of one part of the file: ``tools``, ``fairseq``, ``rest`` or ``plain``."""
    blocks = read_blocks(FILE.read_text())
    if part == "plain":
        return "".join(re.sub(r"\s*\\?\n.*", "", text, flags=re.DOTALL) + "\n" for _, text, _ in blocks)
    tools = closure(blocks, {*map(name_of, TOOLS), "numpy", "torch"})
    needed = {
        "tools": tools,
        "fairseq": {"fairseq-fixed"},
        "rest": closure(blocks, map(name_of, requirements(extras))) - tools - {"fairseq-fixed"},
    }[part]
    return "".join(text for name, text, _ in blocks if name in needed)


def make():
    """Resolve for all supported versions of Python at once and replace the file. Versions in the old file do not count."""
    torch = re.search(r"^measured_torch=(\S+)", FILE.with_name("setup.sh").read_text(), re.MULTILINE)[1]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as overrides:
        overrides.write("torchaudio; sys_platform == 'none'\n")
        overrides.flush()
        compiled = subprocess.run(
            [*COMPILE.split(), "--overrides", overrides.name, "-"],
            input="\n".join([*requirements(), *TOOLS, f"torch=={torch}"]),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        ).stdout
    head = f"# What scripts/setup.sh installs, without torch. Made by: {MAKE}\n"
    FILE.write_text(head + "".join(text for name, text, _ in read_blocks(compiled) if not LEFT_OUT.match(name)))


def main(part="", extras=""):
    extras = [extra for extra in extras.split(",") if extra]
    if part == "make":
        make()
    elif part == "ranges":
        print(*(each for each in requirements(extras) if name_of(each) != "fairseq-fixed"), sep="\n")
    elif part in ("tools", "fairseq", "rest", "plain"):
        print(picked(part, extras), end="")
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(*sys.argv[1:])
