"""Let fairseq find an editable installation of the package. All other settings are in pyproject.toml.

fairseq reads ``--user-dir NAME`` as a folder in the current folder or in site-packages. A wheel installs the package in
site-packages, but an editable installation does not. We add a small stand-in package there, which imports the real one.
"""

import base64
import hashlib
import zipfile
from pathlib import Path

from setuptools import setup
from setuptools.command.editable_wheel import editable_wheel

PACKAGE = "fairseq_reservoir"
STAND_IN = '''\
"""Stand-in for the editable package in {folder!r}. Importing it imports that package."""

import importlib.util
import sys

_folder = {folder!r}
_spec = importlib.util.spec_from_file_location(
    __name__, _folder + "/__init__.py", submodule_search_locations=[_folder]
)
_module = importlib.util.module_from_spec(_spec)
sys.modules[__name__] = _module
_spec.loader.exec_module(_module)
'''


class EditableWheel(editable_wheel):
    """Build command that adds the stand-in to the wheel of ``pip install -e``."""

    def run(self):
        super().run()
        text = STAND_IN.format(folder=str(Path(__file__).absolute().parent / PACKAGE))
        for wheel in Path(self.dist_dir).glob("*.whl"):
            add_file(wheel, f"{PACKAGE}/__init__.py", text.encode())


def add_file(wheel: Path, name: str, data: bytes) -> None:
    """Add a file to a wheel, and its hash to the wheel's RECORD."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    with zipfile.ZipFile(wheel) as old:
        members = [(item, old.read(item)) for item in old.infolist()]
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as new:
        new.writestr(name, data)
        for item, content in members:
            if item.filename.endswith(".dist-info/RECORD"):
                content = f"{name},sha256={digest},{len(data)}\n".encode() + content
            new.writestr(item, content)


setup(cmdclass={"editable_wheel": EditableWheel})
