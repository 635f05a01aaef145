"""``fairseq-reservoir doctor`` with all packages, without torch and fairseq, and with a fairseq that cannot be imported."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import fairseq_reservoir
from fairseq_reservoir.commands.doctor import NEEDED, TRIED, _mark, processor_features, processor_name
from fairseq_reservoir.fairseq_repairs import allocator
from fairseq_reservoir.fairseq_repairs.in_order import REPAIRS
from fairseq_reservoir.fairseq_repairs.repair import WITHOUT
from tests.support.warm_start import run_command

ROOT = Path(fairseq_reservoir.__file__).parents[1]
INTEL = "processor\t: 0\nmodel name\t: Intel(R) Xeon(R) 8488C\nflags\t\t: fpu avx512f avx512_bf16 amx_bf16 amx_tile\n"
OLD = "processor\t: 0\nmodel name\t: Intel(R) Core(TM) i5-3320M\nflags\t\t: fpu sse4_2 avx\n"
ARM = "processor\t: 0\nBogoMIPS\t: 243.75\nFeatures\t: fp asimd sve bf16 i8mm\n"


def doctor(*flags, **environment):
    """Run the command in a new interpreter and return its parsed report."""
    command = [sys.executable, *flags, "-m", "fairseq_reservoir_cli", "doctor"]
    variables = os.environ | {"PYTHONPATH": str(ROOT)} | environment
    return parse_report(subprocess.run(command, capture_output=True, text=True, env=variables))


def parse_report(finished):
    """Return the indented lines by their first word, the advice, and the text without the advice."""
    assert finished.returncode == 0 and "Traceback" not in finished.stderr, finished.stderr
    machine, advice, versions, repairs = finished.stdout.split("\n\n")
    assert "machine\n" in machine and advice.startswith("advice\n") and versions.startswith("versions\n")
    assert repairs.startswith("repairs of fairseq")
    text = "\n".join((machine, versions, repairs))
    return dict(line.split(maxsplit=1) for line in text.splitlines() if line.startswith("  ")), advice, text


def test_with_all_packages():
    variables = os.environ | {WITHOUT: "last-batch", allocator.KEPT_MIB: "300"}
    lines, advice, _ = parse_report(run_command("fairseq-reservoir", "doctor", env=variables))
    for each in REPAIRS:
        state = (
            "switched off" if each.name == "last-batch" else "applied" if each.is_conditional else "applied (always)"
        )
        assert lines[each.name] == f"{state:<18}to {each.purpose[0].lower()}{each.purpose[1:]}"
    assert lines["safe-classes"].startswith("applied (always)") and lines["tied-tensors"].startswith("applied   ")
    assert re.match(r"\d+\.\d+", lines["torch"]) and lines["fairseq"] == "fairseq-fixed 0.12.3.1"
    assert re.match(r"torch uses \d+; OMP_NUM_THREADS is", lines["threads"])
    assert (
        not allocator.is_glibc()
        or lines["freed"] == "memory           kept for the next training step, at most 300 MiB"
    )
    assert f"{WITHOUT}: switches off last-batch" in advice


def test_without_torch_and_fairseq():
    lines, advice, text = doctor("-S")  # -S starts Python without the installed packages
    assert (
        lines["torch"]
        == "not installed, needed for everything except translate, report and sweep: pip install 'torch>=2.6,<2.14'"
    )
    assert lines["fairseq"].startswith(
        "not installed, needed for everything except translate, report, sweep and the reading of exports: pip install 'fairseq-fixed=="
    )
    assert lines["threads"].startswith("no torch") and lines["GPU"] == "no torch"
    assert "repairs of fairseq: none, because fairseq cannot be loaded" in text
    assert "to train, run bash scripts/setup.sh in a clone" in advice and "fairseq-fixed" not in advice
    assert "pip install 'numpy>=1.21.3,<3' 'safetensors'" in advice


def test_with_a_fairseq_that_cannot_be_imported(tmp_path):
    (tmp_path / "fairseq").mkdir()
    (tmp_path / "fairseq" / "__init__.py").write_text(
        "raise ValueError('mutable default <class X> for field\\ncommon is not allowed')"
    )
    (tmp_path / "torch.py").write_text("import numpy")
    lines, advice, _ = doctor("-S", PYTHONPATH=f"{ROOT}{os.pathsep}{tmp_path}")
    assert lines["fairseq"].startswith(
        "of an unknown version does not import (ValueError: mutable default <class X> for field common is not allowed): pip install"
    )
    assert lines["torch"] == "of an unknown version does not import without numpy"
    assert "'fairseq-fixed==0.12.3.1'" in advice and "'torch>=2.6,<2.14'" not in advice


@pytest.mark.parametrize("module, found, is_tried", [
    ("python", ("python", "3.11.0"), True),
    ("python", ("python", "3.13.9"), True),
    ("python", ("python", "3.14.0"), False),
    ("python", ("python", "3.1.0"), False),
    ("torch", ("torch", "2.13.0+cpu"), True),
    ("torch", ("torch", "2.15.0"), False),
    ("torch", ("torch", "2.130.0"), False),
    ("torch", ("torch", "2.6.0"), False),
    ("fairseq", ("fairseq-fixed", "0.12.3.1"), True),
    ("fairseq", ("fairseq-fixed", "0.12.3.10"), False),
    ("fairseq", ("fairseq", "0.12.2"), False),
    ("numpy", ("numpy", "9.9"), True),
    ("torch", None, True),
])  # fmt: skip
def test_versions_that_were_not_tried(module, found, is_tried):
    advice = []
    assert _mark(module, found, advice) == ("" if is_tried else " (not tried)")
    assert advice == (
        [] if is_tried else [f"{' '.join(found)}: not tried; the tests have passed with {', '.join(TRIED[module])}"]
    )


def test_tried_versions_are_the_installable_ones():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    minors = [each.split(".")[1] for each in TRIED["python"]]
    assert project["requires-python"] == f">=3.{minors[0]},<3.{int(minors[-1]) + 1}"
    required = {each.split("=")[0].split(">")[0]: each for each in project["optional-dependencies"]["train"]}
    newest = int(TRIED["torch"][-1].rpartition(".")[2])
    assert required["torch"].endswith(f",<2.{newest + 1}")
    assert required["fairseq-fixed"].split("==") == TRIED["fairseq"][0].split()
    assert {row[2] for row in NEEDED if row[0] in ("torch", "fairseq")} <= {*project["optional-dependencies"]["train"]}


def test_an_unknown_name_of_a_repair():
    _, _, text = parse_report(run_command("fairseq-reservoir", "doctor", env=os.environ | {WITHOUT: "batch"}))
    assert (
        f"repairs of fairseq: none, {WITHOUT} batch: no such repair; choose from input-errors, flag-errors, user-dir, numpy-names, "
        in text
    )


@pytest.mark.parametrize("info, bf16, amx", [
    (INTEL, "yes (avx512_bf16, amx_bf16)", "yes (amx_bf16, amx_tile)"),
    (OLD, "no", "no"),
    (ARM, "yes (bf16)", "no"),
    ("", "unknown, because /proc/cpuinfo does not list instructions", "unknown, because /proc/cpuinfo does not list instructions"),
])  # fmt: skip
def test_processors(info, bf16, amx):
    features = processor_features(info)
    assert (features["bf16"], features["AMX"]) == (bf16, amx)
    assert processor_name(INTEL) == "Intel(R) Xeon(R) 8488C"
