"""scripts/setup.sh names what is missing in one line, and takes little time if nothing is to be done."""

import os
import platform
import re
import shutil
import subprocess
import sys
import time
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
stamp = ROOT / ".venv" / ".setup-stamp"
is_own = stamp.exists() and stamp.read_text().startswith(f"{ROOT}|")
FILES = ("METADATA", "INSTALLER", "RECORD")
TOOLS = "bash cat cksum dirname env grep head ln mkdir mv readlink rm rmdir sed sleep sort uname".split()


@pytest.fixture
def clone(tmp_path):
    """The files of a clone that setup.sh reads, in a folder with a space in its name."""
    folder = tmp_path / "a clone"
    folder.mkdir()
    shutil.copytree(ROOT / "scripts", folder / "scripts")
    for name in ("setup.py", "pyproject.toml"):
        shutil.copy(ROOT / name, folder)
    return folder


@pytest.fixture
def bare_path(tmp_path):
    """A folder for PATH with the usual tools, but without compiler and Python."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in TOOLS:
        (folder / tool).symlink_to(shutil.which(tool))
    return folder


def program(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def run(folder, path=None, *arguments, **options):
    environment = {
        "PATH": str(path or os.environ["PATH"]),
        "HOME": str(folder),
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": "",
        **options,
    }
    return subprocess.run(
        ["bash", "scripts/setup.sh", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )


def with_our_pip(folder):
    """A Python whose environments contain the pip of these tests. Installing pip takes longer than what a test checks."""
    pip, path = Path(find_spec("pip").origin).parent, folder / "python3"
    linked = f'"{sys.executable}" -m venv --without-pip "$3" && ln -s "{pip}" "$3"/lib/python3*/site-packages/'
    own_name = f"printf '{path}\\t{platform.python_version()}\\n'"
    cases = f'"-m venv") {linked} ;; *_base_executable*) {own_name} ;; *) exec "{sys.executable}" "$@" ;;'
    return str(program(path, f'case "$1 $2" in {cases} esac'))


def refusal(folder, path=None, **options):
    """The single line of an error that has left no files."""
    before = sorted(folder.iterdir())
    result = run(folder, path, **options)
    assert result.returncode == 1
    assert result.stderr.count("\n") == 1, result.stderr
    assert sorted(folder.iterdir()) == before
    return result.stderr


def test_no_compiler(clone, bare_path):
    assert "no C++ compiler" in refusal(clone, bare_path, PYTHON=sys.executable, EXTRAS="fastbpe")


def test_no_python(clone, bare_path):
    assert "no Python 3.11, 3.12 or 3.13 found" in refusal(clone, bare_path)


def test_python_that_does_not_run(clone):
    assert "PYTHON=/no/such/python does not run" in refusal(clone, PYTHON="/no/such/python")


@pytest.mark.parametrize("version", ["3.10.14", "3.14.0", "2.7.18"])
def test_wrong_python(clone, bare_path, version):
    old = program(bare_path / "old", f"printf '/usr/bin/old\\t{version}\\n'")
    assert f"is Python {version}: 3.11, 3.12 or 3.13 is needed" in refusal(clone, PYTHON=str(old))


def impostor(folder, question, answer):
    """A Python 3.11 that runs the shell command ``answer`` for any program that contains ``question``."""
    path = folder / "python3.11"
    own_name = f"*_base_executable*) printf '{path}\\t3.11.9\\n' ;;"
    return program(path, f'case "$2" in *{question}*) {answer} ;; {own_name} *) exec "{sys.executable}" "$@" ;; esac')


def stand_in(folder, name, version, venv="exit 0"):
    """A program that claims to be this version of Python, and runs ``venv`` when the venv module is checked."""
    path = folder / name
    answers = f"printf '{path}\\t{version}\\n'"
    others = f"*version_info*) echo {version.rpartition('.')[0]} ;; *sysconfig*) echo /no/include"
    return program(path, f'case "$2" in *sys._base_executable*) {answers} ;; *ensurepip*) {venv} ;; {others} ;; esac')


def test_interpreters_from_the_oldest_to_the_newest(clone, bare_path):
    """Interpreters that do not run, as placeholders of a version manager, and unsupported ones are skipped. Two names of one count once."""
    program(bare_path / "python3.13", "echo 'pyenv: python3.13: command not found' >&2; exit 127")
    stand_in(bare_path, "python3.12", "3.12.1")
    stand_in(bare_path, "python3.11", "3.11.10")
    (bare_path / "python").symlink_to(bare_path / "python3.11")
    stand_in(bare_path, "python3", "3.14.0")
    second = clone / "second on PATH"
    second.mkdir()
    stand_in(second, "python3.12", "3.12.9", venv="exit 1")
    stand_in(second, "python3", "3.11.2")
    listed = run(clone, f"{bare_path}:{second}", "--interpreters")
    rows = [line.split("\t") for line in listed.stdout.splitlines()]
    found = [
        ("3.11.2", second / "python3"),
        ("3.11.10", bare_path / "python3.11"),
        ("3.12.1", bare_path / "python3.12"),
    ]
    assert rows == [[version, str(path)] for version, path in found] and listed.returncode == 0
    said = "cannot make virtual environments: install its venv module (Debian: apt-get install python3.12-venv)"
    assert listed.stderr == f"setup: skipped: {second}/python3.12 {said}\n"


@pytest.mark.parametrize("programs, chosen", [
    ({"python3.11": "3.11.2", "python3.13": "3.13.0", "python3.12": "3.12.1"}, "python3.13"),
    ({"python3.11": "3.11.2", "python3": "3.12.1"}, "python3"),
    ({"python3.13": None, "python3.11": "3.11.2"}, "python3.11"),
])  # fmt: skip
def test_the_newest_interpreter_is_chosen(clone, bare_path, programs, chosen):
    """An interpreter without the venv module (None) is skipped. No header is found, and the error names the chosen interpreter."""
    for name, version in programs.items():
        stand_in(bare_path, name, version or "3.13.0", venv="exit 0" if version else "exit 1")
    program(bare_path / "c++", "exit 0")
    assert f"/Python.h: install the headers of {bare_path}/{chosen} (" in refusal(clone, bare_path, EXTRAS="fastbpe")


def test_wrong_folders_and_arguments(clone, bare_path):
    for folder in ("venv", "..", ".venv-", ".venv-a/b", ".venv-a b", "/.venv"):
        assert f"VENV={folder}: " in refusal(clone, bare_path, VENV=folder)
    ended = run(clone, bare_path, "--fast")
    assert ended.returncode == 1 and "--fast: the only arguments are --help and --interpreters" in ended.stderr


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_installs_nothing(clone, bare_path, flag):
    """Without Python on PATH. The help is the comment at the top of the script."""
    before = sorted(clone.rglob("*"))
    ended = run(clone, bare_path, flag)
    assert (ended.returncode, ended.stderr) == (0, "") and sorted(clone.rglob("*")) == before
    assert ended.stdout.startswith("Creates .venv in this clone") and ended.stdout.endswith("macOS).\n")
    assert all(f"  {name}=" in ended.stdout for name in ("PYTHON", "SYSTEM_TORCH", "TORCH_INDEX", "EXTRAS", "UNPINNED"))


def test_a_package_with_another_hash_is_refused(clone):
    """A wheel with the name and version in the list, but with other content."""
    wheels = clone / "wheels"
    wheels.mkdir()
    with zipfile.ZipFile(wheels / "numpy-1.99-py3-none-any.whl", "w") as wheel:
        wheel.writestr("numpy-1.99.dist-info/METADATA", "Metadata-Version: 2.1\nName: numpy\nVersion: 1.99\n")
        wheel.writestr("numpy-1.99.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("numpy-1.99.dist-info/RECORD", "")
    listed = f"numpy==1.99 \\\n    --hash=sha256:{64 * '0'}\n    # via scipy\n"
    (clone / "scripts" / "constraints.txt").write_text(listed)
    ended = run(
        clone, PYTHON=sys.executable, VENV=".venv-other", PIP_FIND_LINKS="wheels"
    )  # a path with a space counts as two
    assert ended.returncode == 1 and "DO NOT MATCH THE HASHES" in ended.stderr and ended.stderr.count("\n") == 1
    assert (clone / ".venv-other" / ".setup-stamp").exists() and not (clone / ".venv").exists()


def test_no_venv_module(clone, bare_path):
    python = impostor(bare_path, "ensurepip", "exit 1")
    assert "cannot make virtual environments" in refusal(clone, PYTHON=str(python))


def test_no_headers(clone, bare_path):
    python = impostor(bare_path, "include", "echo /no/include")
    program(bare_path / "c++", "exit 0")
    assert "no /no/include/Python.h" in refusal(clone, bare_path, PYTHON=str(python), EXTRAS="fastbpe")


def test_system_torch_is_refused_without_torch(clone, bare_path):
    python = impostor(bare_path, "torch", "exit 1")
    assert "has no torch" in refusal(clone, PYTHON=str(python), SYSTEM_TORCH="1")
    assert "remove TORCH_INDEX" in refusal(clone, PYTHON=sys.executable, SYSTEM_TORCH="1", TORCH_VERSION="2.0")


def test_foreign_environment_is_not_removed(clone):
    (clone / ".venv").mkdir()
    (clone / ".venv" / "mine").touch()
    assert "was not made by scripts/setup.sh" in refusal(clone, PYTHON=sys.executable)
    assert (clone / ".venv" / "mine").exists()


def test_no_network_after_a_set_up_that_was_killed(clone, bare_path):
    """A killed set-up leaves an environment with a stamp of its options, and its lock. The next one uses these options."""
    (clone / ".venv").mkdir()
    (clone / ".venv" / "half").touch()
    (clone / ".venv" / ".setup-stamp").write_text("unfinished\nunfinished\nTORCH_INDEX=http://a.invalid/\nEXTRAS=\n")
    dead = subprocess.Popen(["true"])
    dead.wait()
    (clone / ".setup.lock").symlink_to(str(dead.pid))
    result = run(clone, PYTHON=with_our_pip(bare_path))
    assert result.returncode == 1
    assert result.stderr.count("\n") == 1 and "is the network reachable?" in result.stderr
    stamp = (clone / ".venv" / ".setup-stamp").read_text().splitlines()
    assert stamp[:2] == ["unfinished"] * 2 and "TORCH_INDEX=http://a.invalid/" in stamp
    assert not (clone / ".venv" / "half").exists()
    assert not (clone / ".setup.lock").is_symlink()


def test_an_index_of_torch_that_cannot_be_read(clone, bare_path):
    """It is named before anything is installed. pip alone would skip it and could take torch from another index."""
    index = "http://127.0.0.1:9/whl/"
    ended = run(clone, PYTHON=with_our_pip(bare_path), TORCH_INDEX=index, PIP_NO_INDEX="0")
    assert ended.returncode == 1 and ended.stderr.count("\n") == 1 and "step 1" not in ended.stdout
    reason = "connection error: Failed to establish a new connection: [Errno 111] Connection refused"
    assert ended.stderr.startswith(f"setup: TORCH_INDEX={index} cannot be read: {reason} (")
    # An omitted option keeps its value from the last run, even if that run failed.
    assert ended.stderr.endswith("; to do without it, give TORCH_INDEX=\n")


SHOW = r"""
set -euo pipefail
eval "$(sed -n '/^say() {/p;/^show_progress() {/,/^}/p;/^current_work() {/,/^}/p;/^begin_step() {/,/^}/p' scripts/setup.sh)"
venv=. started=0 naps=0
sleep() {
    naps=$((naps + 1))
    [[ $naps != 2 ]] || begin_step "step 2 of 3: torch"
    [[ $naps -le 2 ]] || sed -n "$((naps - 2))p" lines >>pip.log
    ((naps < 11))
}
show_progress
"""
LINES = """\
Collecting torch==2.13.0 (from -r requirements.txt (line 3))
  Downloading https://a.org/whl/torch-2.13.0%2Bcpu-cp311-cp311-manylinux_2_28_x86_64.whl (190.1 MB)
WARNING: Location 'file:///a/simple/packaging/' is ignored: it is neither a file nor a directory.
Processing /a/antlr4-python3-runtime-4.9.3.tar.gz (from hydra-core)
  Preparing metadata (setup.py): started
Building wheel for fairseq (setup.py): started
Installing collected packages: torch, sympy
Successfully installed torch-2.13.0
"""


def test_progress_is_the_time_the_step_and_the_package(clone):
    """Each line of pip's output is followed by one progress line. Warnings do not appear, and nothing is cut off."""
    (clone / "lines").write_text(LINES)
    shown = subprocess.check_output(["bash", "-c", SHOW], cwd=clone, text=True)
    first, begun, *others = [re.sub(r"\d+ s: ", "", line.removeprefix("setup: ")) for line in shown.splitlines()]
    assert (first, begun) == ("preparing", "step 2 of 3: torch")
    assert [line.removeprefix("step 2 of 3: torch") for line in others] == [
        ": looking for torch==2.13.0",
        *[": downloading torch-2.13.0+cpu (190.1 MB)"] * 2,
        *[": reading antlr4-python3-runtime-4.9.3"] * 2,
        ": building fairseq",
        *[": installing the packages"] * 2,
    ]


@pytest.mark.slow
def test_an_update_without_a_network_leaves_the_environment(clone):
    """A changed list of packages is installed into the environment. If that fails, the next run has the same options."""
    assert "is the network reachable?" in run(clone, PYTHON=sys.executable).stderr
    stamp = clone / ".venv" / ".setup-stamp"
    environment = f"{clone}|{(made := stamp.read_text()).split('PYTHON=')[1].splitlines()[0]}|||0.0.0"
    options = made.split("\n", 2)[2].replace("TORCH_VERSION=", "TORCH_VERSION=0.0.0")
    stamp.write_text(f"{environment}\nan older list\n{options}")
    (clone / ".venv" / "mine").touch()
    for _ in range(2):
        result = run(clone)
        assert result.returncode == 1 and "is the network reachable?" in result.stderr
        assert (clone / ".venv" / "mine").exists() and stamp.read_text() == f"{environment}\nunfinished\n{options}"
    shutil.rmtree(
        next(clone.glob(".venv/lib/python*/site-packages/pip"))
    )  # nothing can be installed into this environment
    run(clone)
    assert not (clone / ".venv" / "mine").exists()


def test_a_run_that_waited_for_another_takes_its_options(clone, bare_path):
    """The first run makes .venv with options other than the defaults. The waiting run uses it unchanged."""
    owner = subprocess.Popen(["sleep", "60"])
    (clone / ".setup.lock").symlink_to(str(owner.pid))
    environment = {"PATH": os.environ["PATH"], "HOME": str(clone), "PIP_NO_INDEX": "1"}
    environment["PYTHON"] = with_our_pip(bare_path)
    waiting = subprocess.Popen(
        ["bash", "scripts/setup.sh"],
        cwd=clone,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    said = waiting.stdout.readline()
    assert "waiting for another set-up" in said
    (clone / ".venv").mkdir()
    (clone / ".venv" / ".setup-stamp").write_text("unfinished\nunfinished\nTORCH_INDEX=http://a.invalid/\n")
    owner.kill(), owner.wait()
    assert waiting.wait(120) == 1
    assert "is the network reachable?" in waiting.stdout.read()
    assert "TORCH_INDEX=http://a.invalid/" in (clone / ".venv" / ".setup-stamp").read_text().splitlines()


LEAVE_OUT = r"""
set -euo pipefail
die() { echo "$*" >&2; exit 1; }
eval "$(sed -n '/^venv=/p;/^pip_install() {/p;/^pip_run() {/,/^}/p;/^leave_out_torchaudio() {/,/^}/p' scripts/setup.sh)"
leave_out_torchaudio
"""
LOOK = """
from importlib.metadata import version
from importlib.util import find_spec
print(version("torchaudio"), find_spec("torchaudio") is not None)
"""


def test_a_torchaudio_that_cannot_be_loaded_is_left_out_and_pip_is_content(clone):
    """Offline, in an environment with setuptools, first with one torchaudio and then with the other."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", ".venv"], cwd=clone, check=True)
    python, environment = (
        clone / ".venv/bin/python",
        {"PATH": os.environ["PATH"], "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": ""},
    )
    seen = Path(
        subprocess.check_output(
            [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], text=True
        ).strip()
    )
    for name in ("pip", "setuptools", "wheel", "pkg_resources", "_distutils_hack", "packaging"):
        if found := find_spec(name):
            package = Path(found.origin).parent
            for path in (package, *package.parent.glob(f"{name}-*.dist-info")):
                (seen / path.name).symlink_to(path)

    def torchaudio(code):
        (seen / "torchaudio").mkdir(exist_ok=True)
        (seen / "torchaudio" / "__init__.py").write_text(code)
        (seen / "torchaudio-2.11.0.dist-info").mkdir(exist_ok=True)
        for name, text in {
            "METADATA": "Metadata-Version: 2.1\nName: torchaudio\nVersion: 2.11.0\n",
            "INSTALLER": "pip\n",
            "RECORD": "".join(
                f"torchaudio{file},,\n" for file in ("/__init__.py", *(f"-2.11.0.dist-info/{n}" for n in FILES))
            ),
        }.items():
            (seen / "torchaudio-2.11.0.dist-info" / name).write_text(text)

    def after_leaving_out():
        subprocess.run(["bash", "-c", LEAVE_OUT], cwd=clone, env=environment, check=True, timeout=120)
        return subprocess.check_output([python, "-c", LOOK], cwd=clone, text=True).split()

    torchaudio("")
    assert after_leaving_out() == ["2.11.0", "True"]
    torchaudio("raise OSError('undefined symbol')")
    assert after_leaving_out() == ["2.11.0+none", "False"]
    assert after_leaving_out() == ["2.11.0+none", "False"]


@pytest.mark.skipif(not (ROOT / ".venv" / ".setup-stamp").exists(), reason="needs the .venv of scripts/setup.sh")
def test_torchaudio_can_be_loaded_or_is_not_there():
    look = "from importlib.util import find_spec\nif find_spec('torchaudio'): import torchaudio"
    assert subprocess.run([ROOT / ".venv/bin/python", "-W", "ignore", "-c", look], cwd=ROOT).returncode == 0


@pytest.mark.skipif(
    not is_own, reason="needs the .venv of scripts/setup.sh in this folder; the test would replace another one"
)
def test_second_run_takes_a_second():
    start = time.monotonic()
    result = subprocess.run(["bash", "scripts/setup.sh"], cwd=ROOT, capture_output=True, text=True)
    assert result.stdout == "setup: .venv is ready\n", result.stderr
    assert time.monotonic() - start < 5  # 0.1 s on an idle machine


def test_the_tests_of_the_oldest_python_exist():
    named = re.findall(r"\btests/[\w/.]+", (ROOT / ".ci" / "run").read_text())
    assert len(named) > 5 and all((ROOT / name).exists() for name in named)
