"""scripts/constraints.py selects pinned versions, and scripts/constraints.txt is complete."""

import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import constraints  # noqa: E402

sys.path.remove(str(ROOT / "scripts"))
LIST = """\
# head
a-b==1.0 \\
    --hash=sha256:1 \\
    --hash=sha256:2
    # via root
c==2.0 ; python_full_version < '3.12' \\
    --hash=sha256:3
    # via a-b
c==2.1 ; python_full_version >= '3.12' \\
    --hash=sha256:4
    # via a-b, d
d==3.0 \\
    --hash=sha256:5
    # via c
e==4.0 \\
    --hash=sha256:6
    # via other
"""


def test_a_package_brings_its_requirements():
    """a-b requires c, in one of two versions, and c requires d; e belongs to another package."""
    blocks = constraints.read_blocks(LIST)
    assert [(name, sorted(parents)) for name, _, parents in blocks] == [
        ("a-b", ["root"]), ("c", ["a-b"]), ("c", ["a-b", "d"]), ("d", ["c"]), ("e", ["other"]),
    ]  # fmt: skip
    assert constraints.closure(blocks, ["root"]) == {"root", "a-b", "c", "d"}
    assert constraints.closure(blocks, ["c"]) == {"c", "d"}
    assert "".join(text for _, text, _ in blocks) == LIST.removeprefix("# head\n")


@pytest.mark.parametrize("requirement, name", [("Sub_word[x]>=1", "sub-word"), ("a.b-c==1 ; x", "a-b-c"), ("d", "d")])
def test_names(requirement, name):
    assert constraints.name_of(requirement) == name


def names(part, *extras):
    return [name for name, _, _ in constraints.read_blocks(constraints.picked(part, extras))]


def test_the_list_has_every_requirement_of_every_extra():
    listed = {name for name, _, _ in constraints.read_blocks(constraints.FILE.read_text())}
    required = {constraints.name_of(each) for each in constraints.requirements() + constraints.TOOLS}
    assert required - listed == {"torch"}
    assert not [name for name in listed if constraints.LEFT_OUT.match(name)]
    assert "://" not in constraints.FILE.read_text()


def test_the_parts_together_are_the_list():
    extras = constraints.tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    parts = names("tools") + names("fairseq") + names("rest", *extras)
    assert sorted(parts) == sorted(name for name, _, _ in constraints.read_blocks(constraints.FILE.read_text()))
    assert (
        "jinja2" in names("tools")
        and "hydra-core" in names("rest", "train")
        and "mkdocs" not in names("rest", "test", "dev")
    )


def test_every_version_has_a_hash_and_its_place_without_hashes():
    blocks = constraints.read_blocks(constraints.FILE.read_text())
    assert all(re.search(r"--hash=sha256:[0-9a-f]{64}\n", text) for _, text, _ in blocks)
    plain = constraints.picked("plain", []).splitlines()
    assert len(plain) == len(blocks) and not [line for line in plain if "hash" in line or line.endswith("\\")]
    assert "hydra-core==1.3.2" in plain


def test_usage():
    ended = subprocess.run([sys.executable, constraints.__file__, "what"], capture_output=True, text=True)
    assert ended.returncode == 1 and "constraints.py tools" in ended.stderr


@pytest.mark.skipif(not (ROOT / ".venv/.setup-stamp").exists(), reason="needs the .venv of scripts/setup.sh")
def test_installed_versions_are_those_of_the_list():
    stamp = (ROOT / ".venv/.setup-stamp").read_text()
    if (
        Path(sys.prefix) != ROOT / ".venv"
        or not re.search(r"^UNPINNED=$", stamp, re.MULTILINE)
        or "SYSTEM_TORCH=1" in stamp
    ):
        pytest.skip("the environment was not made with scripts/constraints.txt")
    listed = {}
    for name, text, _ in constraints.read_blocks(constraints.FILE.read_text()):
        listed.setdefault(name, set()).add(re.match(r"\S+?==(\S+)", text)[1])
    installed = {constraints.name_of(each.name): each.version for each in metadata.distributions()}
    assert {name: version for name, version in installed.items() if version not in listed.get(name, {version})} == {}
