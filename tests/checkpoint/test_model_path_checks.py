"""Wrong flags of commands that read a model give one line, before DATA is read."""

import sys
from importlib import import_module

import pytest
from fairseq import options
from omegaconf import OmegaConf

from fairseq_reservoir.checkpoint import model_path_checks
from fairseq_reservoir.errors import InputError
from tests.support.commands import USER_DIR

NO_PATH = "--path: not given; give the file of a model, such as --path checkpoints/checkpoint_best.pt"


def answer(monkeypatch, command, *words):
    line = [f"fairseq-{command}", "no-data", "--user-dir", USER_DIR, "--cpu", *map(str, words)]
    monkeypatch.setattr(sys, "argv", line)
    with pytest.raises(InputError) as refusal:
        import_module(f"fairseq_cli.{command.replace('-', '_')}").cli_main()
    return str(refusal.value)


@pytest.mark.parametrize("command", ["generate", "interactive", "eval-lm", "validate"])
def test_missing_models(monkeypatch, tmp_path, command):
    task = ["--task", "translation"] if command == "validate" else []
    missing, name = tmp_path / "missing.pt", tmp_path / "checkpoint_best.pt"
    assert answer(monkeypatch, command, *task) == NO_PATH
    assert answer(monkeypatch, command, *task, "--path", missing) == f"--path {missing}: no such file"
    folder = f"--path {tmp_path}: is a folder; name a file in it, such as {name}"
    assert answer(monkeypatch, command, *task, "--path", tmp_path) == folder


def test_one_of_an_ensemble(monkeypatch, tmp_path):
    (tmp_path / "first.pt").touch()
    both = f"{tmp_path}/first.pt:{tmp_path}/second.pt"
    assert answer(monkeypatch, "generate", "--path", both) == f"--path {tmp_path}/second.pt: no such file"


@pytest.mark.parametrize("command", ["eval-lm", "validate"])
def test_several_models_for_a_single_one(monkeypatch, tmp_path, command):
    task = ["--task", "translation"] if command == "validate" else []
    line = answer(monkeypatch, command, *task, "--path", "a.pt:b.pt")
    assert line == f"--path a.pt:b.pt: names several models, but fairseq-{command} accepts only one; give one of them"


def test_the_first_shard_of_a_model(monkeypatch, tmp_path):
    (tmp_path / "model-shard0.pt").touch()
    assert "no-data" in answer(monkeypatch, "generate", "--path", tmp_path / "model.pt")


def test_an_impossible_name(monkeypatch):
    assert answer(monkeypatch, "generate", "--path", "m" * 5000).endswith("m: cannot be read (File name too long)")


def test_the_language_model_beside_it(monkeypatch, tmp_path):
    (tmp_path / "model.pt").touch()
    lm = tmp_path / "lm.pt"
    line = answer(monkeypatch, "generate", "--path", tmp_path / "model.pt", "--lm-path", lm)
    assert line == f"--lm-path {lm}: no such file"


def test_required_flags_of_validate(monkeypatch, tmp_path):
    (tmp_path / "model.pt").touch()
    path = ["--path", tmp_path / "model.pt"]
    line = answer(monkeypatch, "validate", *path, "--batch-size", 4)
    assert line == "--task: not given; give the task of the training, such as --task translation"
    line = answer(monkeypatch, "validate", *path, "--task", "translation")
    assert line == "--max-tokens, --batch-size: not given; give one of them, such as --max-tokens 4096"


@pytest.mark.parametrize(
    "path",
    [
        ("no/model.pt", "--checkpoint-suffix", "_part"),
        ("no/model.pt", "--checkpoint-shard-count", 2),
        ("no/model.pt", "--model-parallel-size", 2),
        ("s3://b/m.pt",),
    ],
)
def test_sharded_and_remote_models_are_left_to_fairseq(monkeypatch, path):
    assert "no-data" in answer(monkeypatch, "generate", "--path", *path)


@pytest.mark.parametrize(
    "command, flags, message",
    [
        ("generate", "--beam=0", "--beam 0: must be from 1 to 10000"),
        ("generate", "--nbest=0", "--nbest 0: must be at least 1"),
        ("interactive", "--lenpen=nan", "--lenpen nan: must be from -10 to 10"),
        ("generate", "--sampling", "--sampling: fairseq prints all samples, so --nbest (1) must equal --beam (5)"),
        ("interactive", "--input=nofile", "--input nofile: no such file"),
        ("interactive", "--batch-size=3 --buffer-size=2", "--batch-size 3: must be at most --buffer-size (2)"),
        ("interactive", "--prefix-size=1", "--prefix-size 1: needs references, so it works only in fairseq-generate"),
        (
            "interactive",
            "--score-reference",
            "--score-reference: needs references, so it works only in fairseq-generate",
        ),
        (
            "interactive",
            "--print-alignment=soft",
            "--print-alignment soft: works only in fairseq-generate; remove soft",
        ),
        ("generate", "--model-overrides=3", "--model-overrides '3': must be a Python dictionary"),
        ("eval-lm", "--context-window=-1", "--context-window -1: must be at least 0"),
        (
            "generate",
            "--gen-subset=a${b}",
            "--gen-subset 'a${b}': only YAML files can refer to other options by ${...}",
        ),
        ("generate", "--gen-subset=a\\'b", '--gen-subset "a\\\\\'b": has a backslash before a quote'),
    ],
)
def test_impossible_flags_of_generation(monkeypatch, tmp_path, command, flags, message):
    (tmp_path / "model.pt").touch()
    assert answer(monkeypatch, command, "--path", tmp_path / "model.pt", *flags.split()).startswith(message)


@pytest.mark.parametrize(
    "task, flag", [("translation_multi_simple_epoch", "sampling_method"), ("speech_to_text", "config_yaml")]
)
def test_fairseq_validate_overrides_with_all_its_flags(task, flag):
    """These two tasks have no dataclass."""
    parser = options.get_validation_parser(task)
    flags = vars(options.parse_args_and_arch(parser, ["no-data", "--task", task, "--path", "a.pt"]))
    assert flag in flags
    model_path_checks.check_overrides("a.pt", {"cfg": None, "args": None}, flags)
    model_path_checks.check_overrides("a.pt", {}, {"prepend_bos": True, "report_accuracy": True})


def test_keys_of_overrides():
    """A key is in the checkpoint's configuration, or a flag of fairseq or of one of its models. Any value is allowed."""
    state = {"cfg": OmegaConf.create({"task": {"mine": 1}}), "args": None}
    known = {"mine": 2, "beam": 3, "encoder_layerdrop": 0.1, "task": {"data": "x"}}
    model_path_checks.check_overrides("a.pt", state, known)
    with pytest.raises(InputError) as refusal:
        model_path_checks.check_overrides("a.pt", state, known | {"encoder_layerdop": 0.1})
    assert str(refusal.value) == (
        "--model-overrides: 'encoder_layerdop': neither in the configuration of a.pt nor a flag of fairseq; "
        "did you mean 'encoder_layerdrop'?"
    )
