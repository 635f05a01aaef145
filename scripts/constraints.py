"""Pinned versions for scripts/setup.sh: prints parts of scripts/constraints.txt for pip, and updates that file.

    constraints.py tools            build tools, and the pure-Python packages that torch needs
    constraints.py fairseq          only fairseq
    constraints.py rest [EXTRA,..]  all other packages of the plugin, of fairseq and of these extras
    constraints.py plain            all packages, without hashes
    constraints.py ranges [EXTRA,..]  the requirements in pyproject.toml, without fairseq
    constraints.py make             update the file to the newest versions that pyproject.toml allows; needs `pip install uv`

torch is not in the file, because its wheels and their hashes differ between CPU and GPU. setup.sh has its version.
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
# Packages that are installed with torch, and torchaudio, which fairseq requires but setup.sh does not install.
LEFT_OUT = re.compile(r"(torch|torchaudio|triton|(nvidia|cuda)-.*)$")
COMPILE = (
    "uv pip compile --quiet --universal --generate-hashes --annotation-style line --no-header --python-version 3.11"
)


def name_of(requirement):
    """Normalised package name in a requirement such as ``Sub_word[x]>=1``."""
    return re.sub(r"[-_.]+", "-", re.match(r"[\w.-]+", requirement)[0]).lower()


def requirements(extras=None):
    """Requirements in pyproject.toml, including those of ``extras``. None includes all extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    optional = project["optional-dependencies"]
    lists = [project["dependencies"], *(optional[extra] for extra in (optional if extras is None else extras))]
    return [requirement for each in lists for requirement in each]


def read_blocks(text):
    """Parse the output of `uv pip compile` to (name, text, parents) of each package. A name may have two versions."""
    blocks = []
    for block in re.findall(r"^\S.*==.*\n(?:[ ].*\n)*", text, re.MULTILINE):
        parents = re.findall(r"[\w.-]+", block.partition("# via ")[2])
        blocks.append((name_of(block), block, {name_of(parent) for parent in parents}))
    return blocks


def closure(blocks, names):
    """Return ``names`` and the names of all packages that they require."""
    found = {*names}
    while more := {name for name, _, parents in blocks if parents & found} - found:
        found |= more
    return found


def picked(part, extras):
    """Text of one part of the file: ``tools``, ``fairseq``, ``rest`` or ``plain``."""
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
    """Resolve versions for all supported versions of Python, and replace the file. The old file has no influence."""
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
