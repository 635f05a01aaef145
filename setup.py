"""Makes an editable installation known to fairseq; everything else stands in pyproject.toml.

fairseq takes ``--user-dir NAME`` for a folder. It looks for one in the current folder and then in site-packages, beside itself. A
wheel puts the package there. An editable installation does not, so a small package there stands for the one in the clone.
"""

import base64
import hashlib
import zipfile
from pathlib import Path

from setuptools import setup
from setuptools.command.editable_wheel import editable_wheel

PACKAGE = "fairseq_reservoir"
STAND_IN = '''\
"""Stands for the editable package in {folder!r}: importing this imports that one."""

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
    """Adds the stand-in to the wheel that pip installs for ``pip install -e``."""

    def run(self):
        super().run()
        text = STAND_IN.format(folder=str(Path(__file__).absolute().parent / PACKAGE))
        for wheel in Path(self.dist_dir).glob("*.whl"):
            add_file(wheel, f"{PACKAGE}/__init__.py", text.encode())


def add_file(wheel: Path, name: str, data: bytes) -> None:
    """Add a file to a wheel, and its hash to the list of files."""
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
