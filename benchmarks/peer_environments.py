"""Python environments for other toolkits, installed from the package index.

Each is a separate virtual environment with access to the torch of the running environment, so that all use the same kernels. pip
tries wheels first, and then may compile. If a toolkit cannot be installed, the other toolkits are still timed.
"""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import NamedTuple

import torch

PROGRAM = "peers"


class Peer(NamedTuple):
    """A toolkit: its worker in ``benchmarks/peers`` and its packages for pip, the toolkit first."""

    worker: str
    packages: tuple[str, ...]


PEERS = {
    "transformers": Peer("transformers_steps.py", ("transformers==5.23.0", "accelerate")),
    "eole": Peer("eole_steps.py", ("eole==0.6.4",)),
    "joeynmt": Peer("joeynmt_steps.py", ("joeynmt==2.3.0", "importlib_metadata", "tqdm")),
}


class NotInstalled(Exception):
    """pip failed to install a toolkit; the message has its last error line."""


def python_of(folder):
    """Interpreter of an environment."""
    return Path(folder, "bin", "python")


def made(name, folder):
    """Installed versions in a toolkit's environment by package name; None if it is incomplete or has other packages."""
    try:
        stamp = json.loads((folder / name / "installed.json").read_text())
    except (OSError, ValueError):
        return None
    wanted = {"packages": list(PEERS[name].packages), "torch": torch.__version__, "python": sys.version}
    return stamp["versions"] if {key: stamp.get(key) for key in wanted} == wanted else None


def make(name, folder):
    """Create a toolkit's environment ``folder/name`` if needed. Return the installed versions by package name.

    Raises:
        NotInstalled: pip failed.
    """
    if versions := made(name, folder):
        return versions
    place = folder / name
    shutil.rmtree(place, ignore_errors=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    print(f"{PROGRAM}: installing {', '.join(PEERS[name].packages)} into {place}", file=sys.stderr)
    _run([getattr(sys, "_base_executable", sys.executable), "-m", "venv", "--without-pip", place], place)
    (_packages_of(place) / "torch_of_the_benchmark.pth").write_text(f"{Path(torch.__file__).parent.parent}\n")
    constraints = place / "constraints.txt"
    constraints.write_text(f"torch=={torch.__version__}\n")
    pip = [sys.executable, "-m", "pip", "--python", python_of(place)]
    install = [*pip, "install", "--constraint", constraints, *PEERS[name].packages]
    try:
        _run([*install, "--only-binary", ":all:"], place)
    except NotInstalled:
        _run(install, place)
    found = json.loads(_run([*pip, "list", "--format", "json"], place))
    versions = {package["name"]: package["version"] for package in found}
    stamp = {"packages": list(PEERS[name].packages), "torch": torch.__version__, "python": sys.version}
    whole = place / "installed.json.new"
    whole.write_text(json.dumps(stamp | {"versions": versions}, indent=1) + "\n")
    whole.replace(place / "installed.json")
    return versions


def _packages_of(place):
    return Path(sysconfig.get_path("purelib", "venv", {"base": place, "platbase": place}))


def _run(command, place):
    """Run a command and return its output. A log is written next to the environment."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ended = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=environment)
    if place.parent.is_dir():
        with (place.parent / f"{place.name}.log").open("a") as log:
            log.write(ended.stdout + ended.stderr)
    if ended.returncode:
        lines = [line for line in (ended.stderr + ended.stdout).splitlines() if line.strip()]
        errors = [line for line in lines if "error" in line.lower()]
        raise NotInstalled((errors or lines or [f"status {ended.returncode}"])[-1].strip())
    return ended.stdout
