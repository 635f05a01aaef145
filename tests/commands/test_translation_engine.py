"""The engine of `translate`: the choice of --engine auto, and flags that an engine cannot honour."""

import io
import sys
from types import SimpleNamespace

import pytest

from fairseq_reservoir import cli
from fairseq_reservoir.commands import translation_engine
from tests.support.ctranslate2_models import exported

pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed: pip install ctranslate2")


@pytest.fixture
def translate(monkeypatch, capfdbinary, caplog):
    """Return a function that runs the command with --verbose. It returns the standard output, and the log line about the engine."""
    caplog.set_level("INFO")

    def run(model, *flags):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"one\n")))
        cli.main(["translate", str(model), "--max-len-b", "4", "--verbose", *flags])
        sys.stdout.flush()
        lines = [record.getMessage() for record in caplog.records]
        caplog.clear()
        return capfdbinary.readouterr().out.decode(), next(line for line in lines if line.startswith("engine: "))

    return run


@pytest.fixture
def installed(monkeypatch):
    """Return a function that makes packages seem missing, and sets the number of GPUs. torch seems to be a build for GPUs."""

    def change(missing=(), gpus=0):
        monkeypatch.setattr(translation_engine, "_torch_is_for_gpus", lambda: True)
        found = translation_engine.find_spec
        monkeypatch.setattr(translation_engine, "find_spec", lambda name: None if name in missing else found(name))
        monkeypatch.setattr(translation_engine, "_gpus", lambda: gpus)

    return change


def test_both_engines(translate, with_text):
    (ours, first), (theirs, second) = translate(with_text), translate(with_text, "--engine", "torch")
    assert ours == theirs != ""
    assert first.startswith("engine: CTranslate2 ") and second == "engine: torch, because of --engine torch"


@pytest.mark.parametrize("flags, missing, gpus, expected", [
    ([], (), 1, "torch, because this machine has a GPU"),
    (["--cpu"], (), 1, "CTranslate2"),
    ([], ("torch",), 1, "CTranslate2"),
    (["--int8"], (), 1, "CTranslate2"),
    (["--cuda-graphs"], (), 0, "torch, because of --cuda-graphs"),
    ([], ("ctranslate2",), 0, "torch, because the package ctranslate2 is not installed"),
])  # fmt: skip
def test_the_choice_of_auto(translate, installed, with_text, flags, missing, gpus, expected, monkeypatch):
    monkeypatch.delenv(translation_engine.GENERATION_GRAPHS, raising=False)
    installed(missing, gpus)
    assert translate(with_text, *flags)[1].startswith(f"engine: {expected}")


@pytest.mark.parametrize("cuda", [None, "12.8"])
def test_a_torch_for_cpus_on_a_machine_with_a_gpu(translate, with_text, tmp_path, monkeypatch, cuda):
    """torch/version.py names the version of CUDA. This test cannot compute on a GPU."""
    (tmp_path / "version.py").write_text(f"cuda = {cuda!r}\n")
    monkeypatch.setattr(translation_engine, "_gpus", lambda: 1)
    found = SimpleNamespace(origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(translation_engine, "find_spec", lambda name: found)
    assert translate(with_text)[1].startswith("engine: torch, because this" if cuda else "engine: CTranslate2")


@pytest.mark.parametrize("flags, missing, message", [
    (["--engine", "torch", "--int8"], (), "--int8: works only with --engine ctranslate2; remove --int8 or --engine torch"),
    (["--engine", "ctranslate2", "--cuda-graphs"], (), "--cuda-graphs: works only with --engine torch; remove --cuda-graphs or"),
    (["--int8", "--cuda-graphs"], (), "--int8: needs --engine ctranslate2, but torch translates because of --cuda-graphs"),
    (["--int8"], ("ctranslate2",), "--int8: needs the package ctranslate2, which is not installed: pip install ctranslate2"),
    (["--engine", "ctranslate2"], ("ctranslate2",), "--engine ctranslate2: needs the package ctranslate2"),
])  # fmt: skip
def test_flags_that_an_engine_cannot_honour(translate, installed, with_text, flags, missing, message):
    installed(missing)
    with pytest.raises(SystemExit) as refusal:
        translate(with_text, *flags)
    assert message in str(refusal.value) and "\n" not in str(refusal.value)


def test_a_model_that_only_torch_can_compute(translate, installed, toy_data, tmp_path):
    path = exported(toy_data, tmp_path, "--reservoir-encoder LF")
    reason = f"{path}: encoder layer 1 is F (feed-forward), which fairseq's transformer does not have"
    assert translate(path)[1].startswith(f"engine: torch, because {reason}")
    for flags in (["--engine", "ctranslate2"], ["--int8"]):
        with pytest.raises(SystemExit) as refusal:
            translate(path, *flags)
        assert reason in str(refusal.value) and "use --engine torch" in str(refusal.value)
    installed(("torch", "fairseq"))
    with pytest.raises(SystemExit, match="use --engine torch .run bash scripts.setup.sh in a clone.$"):
        translate(path)
