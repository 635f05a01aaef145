"""Numbers, texts, dictionaries and files in fairseq's flags: accepted values work, and all others give one line."""

import errno
import json
import math
import os
import sys
import warnings
from argparse import Namespace

import pytest
import torch
from fairseq import options
from fairseq.dataclass.utils import override_module_args
from fairseq.optim import OPTIMIZER_REGISTRY
from fairseq.optim.lr_scheduler import LR_SCHEDULER_REGISTRY
from fairseq.registry import REGISTRIES
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from fairseq_reservoir.checkpoint.training_start import check_whole
from fairseq_reservoir.errors import InputError, flag_of
from fairseq_reservoir.fairseq_repairs.error_report import find_input_error
from fairseq_reservoir.options import fairseq_rules
from fairseq_reservoir.options.for_fairseq import dictionary_flags
from fairseq_reservoir.trainer import fairseq_flags, preflight
from tests.integration.test_fuzzed_flags import HOSTILE, answer_of, fuzzed, mutated

NUMBERS = [0, -1, 1, 2, 5, -5, 0.5, 1.5, -0.5, 1e-3, 0.1, 1e-320, 1e30, 1e308, -1e308, 10**14, 10**16, 2**63, 10**30,
           math.nan, math.inf, -math.inf]  # fmt: skip
UPDATES = 12


def number_for(random, like):
    """A random number suitable for a field, sometimes a hostile one."""
    value = random.choice(NUMBERS) if random.random() < 0.5 else random.choice([1, 2, 3, 0.1, 0.5, 0.9])
    return int(value) if isinstance(like, int) and math.isfinite(value) else value


def drawn(random, dataclass, _name):
    """Options of a dataclass with up to three random numbers."""
    values = {name: value for name, value in vars(dataclass()).items() if not str(value).startswith(("${", "???"))}
    numbers = [
        name for name, value in values.items() if isinstance(value, (int, float)) and not isinstance(value, bool)
    ]
    for name in random.sample(numbers, min(len(numbers), random.randint(0, 3))):
        values[name] = number_for(random, values[name])
    return values | {"_name": _name}


def assert_rates_and_steps_are_finite(random):
    """Run twelve updates and a validation with an accepted optimizer and schedule. Assert that there is no error, and that rates are
    finite and not negative.
    """
    scheduler = random.choice(sorted(name for name, made in REGISTRIES["lr_scheduler"]["dataclass_registry"].items()
                                     if made and name != "pass_through"))  # fmt: skip
    optimizer = random.choice(["adam", "nag"])
    lr = [number_for(random, 0.1) if random.random() < 0.3 else 0.1]
    max_update = number_for(random, 1) if random.random() < 0.3 else UPDATES
    of_run = {"lr": lr, "max_update": max_update}
    config = {
        "optimization": of_run,
        "optimizer": drawn(random, REGISTRIES["optimizer"]["dataclass_registry"][optimizer], optimizer) | {"lr": lr},
        "lr_scheduler": drawn(random, REGISTRIES["lr_scheduler"]["dataclass_registry"][scheduler], scheduler) | of_run,
    }
    if scheduler == "triangular":
        config["lr_scheduler"]["max_lr"] = number_for(random, 0.5)
    elif scheduler == "polynomial_decay":
        config["lr_scheduler"]["total_num_update"] = number_for(random, 0.5)
    elif scheduler == "reduce_lr_on_plateau":
        config["lr_scheduler"]["maximize_best_checkpoint_metric"] = False
    config = OmegaConf.create(config)
    try:
        fairseq_rules.check(config)
        fairseq_flags.check_number_of_rates(config)
        fairseq_flags.check_phases(config)
    except InputError as error:
        assert str(error).startswith("--") and "\n" not in str(error)
        return
    parameter = torch.nn.Parameter(torch.ones(2))
    made = OPTIMIZER_REGISTRY[optimizer](config.optimizer, [parameter])
    schedule = LR_SCHEDULER_REGISTRY[scheduler](config.lr_scheduler, made)
    schedule.step_begin_epoch(1)
    for update in range(UPDATES + 1):
        schedule.step_update(update)
        assert 0 <= made.get_lr() < math.inf, f"{config}: rate {made.get_lr()} in update {update}"
    schedule.step(1, val_loss=3.0)


def words_of_generation(random, parser, model):
    numeric = [action for action in parser._actions if action.type in (int, float) and action.option_strings]
    flags = {}
    for action in random.sample(numeric, random.randint(1, 3)):
        value = mutated(random, str(random.choice(NUMBERS))) if random.random() < 0.2 else str(random.choice(NUMBERS))
        # An error names the flag of the destination, not an alias such as --nval for --max-valid-steps.
        names = action.option_strings
        flags[flag_of(action.dest) if flag_of(action.dest) in names else names[-1]] = value
    return ["no-data", "--path", model, *(f"{flag}={value}" for flag, value in flags.items())]


def assert_search_is_answered(random, model, monkeypatch):
    command = random.choice(["generate", "interactive"])
    monkeypatch.setattr(sys, "argv", [f"fairseq-{command}"])
    parser = getattr(options, f"get_{'generation' if command == 'generate' else command + '_generation'}_parser")()
    words = words_of_generation(random, parser, model)
    try:
        accepted = options.parse_args_and_arch(parser, words)
    except InputError as error:
        assert any(word.split("=")[0] in str(error) for word in words[3:]), f"{words}: {error}"
        return
    given = vars(accepted)
    assert given["nbest"] >= 1 and given["beam"] >= 1 and given["temperature"] > 0 and given["min_len"] >= 0
    assert abs(given["lenpen"]) <= 10 and (1000.0 ** given["lenpen"]) < 3e38
    assert not any(isinstance(value, float) and math.isnan(value) for value in given.values()), words


def assert_text_arrives(random, parser, monkeypatch):
    """Assert that text in any flag is refused in one line, or that hydra reads it back unchanged."""
    monkeypatch.setattr(sys, "argv", ["fairseq-train"])
    texts = [
        "--save-dir",
        "--log-file",
        "--restore-file",
        "--train-subset",
        "--best-checkpoint-metric",
        "--tensorboard-logdir",
    ]
    flag = random.choice(texts)
    text = mutated(random, random.choice([*HOSTILE, "it's", "\\'", "a\\b", "${", "$${x}", "é"]))
    words = ["no-data", "--arch", "transformer_tiny", "--optimizer", "adam", "--max-tokens", "9", f"{flag}={text}"]
    try:
        accepted = options.parse_args_and_arch(parser, words)
    except InputError as error:
        assert flag in str(error), f"{words}: {error}"
        return
    name = flag.removeprefix("--").replace("-", "_")
    override = [one for one in override_module_args(accepted)[0] if one.split("=")[0].endswith(f".{name}")][0]
    assert OmegaConf.create({"given": OverridesParser.create().parse_override(override).value()}).given == text


DICTIONARIES = ['{"beam": 4}', "{}", '{"beam": 0}', '{"lenpen": NaN}', '{"nothing": 1}', "[1]", "3", "null", '"a"', "{1: 2}",
                "{'a': 1}", '{"beam": "5"}', '{"sampling": 1}', "{" * 5000, '{"max_len_a": 1.2, "max_len_b": 10}', "{[]: 1}"]  # fmt: skip


def assert_dictionary_is_answered(random):
    text = mutated(random, random.choice(DICTIONARIES))
    try:
        dictionary_flags.check_task(Namespace(eval_bleu=True, eval_bleu_args=text, eval_bleu_detok="space"))
        given = json.loads(text)
        assert given.get("beam", 5) >= 1 and given.get("nbest", 1) >= 1 and "nothing" not in given
    except InputError as error:
        assert str(error).startswith("--eval-bleu-args")
    try:
        assert all(isinstance(key, str) for key in dictionary_flags.read_python("--model-overrides", text))
    except InputError as error:
        assert str(error).startswith("--model-overrides")


def odd_path(random, folder):
    """A path that is not a file, and whether the system refuses it at once."""
    good = folder / "good.pt"
    return random.choice([
        folder / "missing.pt", folder, folder / ("x" * 300), folder / ("y/" * 2100), folder / "secret.pt", folder / "pipe",
        folder / "\udcff.pt", good / "below.pt", folder / "loop.pt", f"{good}\0", "", " ", "\n",
    ])  # fmt: skip


@pytest.fixture
def odd_files(tmp_path, monkeypatch):
    """A folder with an unreadable file, a pipe and a link to itself. Root may read all files, so the permission check is simulated."""
    (tmp_path / "good.pt").write_text("no checkpoint")
    (tmp_path / "secret.pt").write_text("secret")
    (tmp_path / "loop.pt").symlink_to("loop.pt")
    os.mkfifo(tmp_path / "pipe")
    really = os.open

    def refusing(path, *args, **kwargs):
        if os.fspath(path) == str(tmp_path / "secret.pt") and not isinstance(path, int):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return really(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", refusing)
    return tmp_path


def commands_with(path, out):
    """Our commands that read ``path``."""
    return [
        ["translate", path, "--cpu"], ["size", path], ["materialize", path, f"{out}.pt"], ["average", path, path, f"{out}.pt"],
        ["export", path, f"{out}.safetensors"], ["dump-embeddings", path, f"{out}.txt"], ["probe", path, os.path.dirname(out)],
    ]  # fmt: skip


def assert_file_is_refused(random, folder, monkeypatch):
    path = str(odd_path(random, folder))
    kind = random.choice(["ours", "out", "start", "log", "path", "input"])
    if kind in ("ours", "out"):
        words = random.choice(commands_with(path, folder / "out"))
        if kind == "out":
            words = [
                "materialize",
                str(folder / "good.pt"),
                str(folder / ("x" * random.choice([250, 253, 300, 5000]) + ".pt")),
            ]
        answer, status = answer_of(words)
        assert status not in (0, None) and answer.count("\n") == 1 and "Traceback" not in answer, f"{words}: {answer}"
    else:
        with pytest.raises(InputError) as refusal, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            if kind == "start":
                flag = random.choice(["restore_file", "finetune_from_model", "continue_once"])
                config = {"restore_file": "checkpoint_last.pt", "save_dir": str(folder)} | {flag: path}
                check_whole(Namespace(**config))
            elif kind == "log":
                path = path if path != str(folder / "missing.pt") else str(folder / "none" / "x.log")
                preflight.check_log_file(path)
                raise InputError("accepted") if writable(path) else AssertionError(path)
            else:
                command = "interactive" if kind == "input" else "generate"
                monkeypatch.setattr(sys, "argv", [f"fairseq-{command}"])
                made = (
                    options.get_interactive_generation_parser() if kind == "input" else options.get_generation_parser()
                )
                model = str(folder / "good.pt") if kind == "input" else path
                options.parse_args_and_arch(
                    made, ["no-data", "--path", model, *([f"--input={path}"] if kind == "input" else [])]
                )
                raise InputError("a pipe") if kind == "input" and path == str(folder / "pipe") else AssertionError(path)
        assert "\n" not in str(refusal.value)
    assert not (folder / "out.pt").exists()


def writable(path):
    existed = os.path.exists(path)
    with open(path, "a"):
        pass
    if not existed:
        os.unlink(path)
    return True


def test_errors_of_files_name_the_file():
    """Files that fairseq opens later: data, codes, word vectors, files of preprocess."""
    for error in (errno.EACCES, errno.ENOENT, errno.ENAMETOOLONG, errno.EISDIR):
        found = find_input_error(OSError(error, os.strerror(error), "data/dict.txt"))
        assert str(found) == f"data/dict.txt: {os.strerror(error)}"
    wrapped = RuntimeError("worker")
    wrapped.__cause__ = PermissionError(errno.EACCES, "Permission denied", b"a\xff")
    assert str(find_input_error(wrapped)) == "a\\udcff: Permission denied"
    assert find_input_error(OSError(errno.ENOSPC, "No space left on device", "x")) is None
    assert find_input_error(OSError(errno.ENOENT, "no file is named")) is None


def test_a_missing_program_is_no_mistake_in_a_file(monkeypatch):
    """torch searches for ninja and a compiler. Their names are in no flag."""

    def found(*words):
        monkeypatch.setattr(sys, "argv", ["fairseq-train", *words])
        return find_input_error(FileNotFoundError(errno.ENOENT, "No such file or directory", "ninja"))

    assert found() is found("--arch", "ninja_transformer") is None
    for words in (["ninja"], ["--path", "ninja"], ["--path=ninja"], ["a:ninja"], ["task.data=ninja"]):
        assert str(found(*words)) == "ninja: No such file or directory"


@pytest.fixture
def model_file(tmp_path):
    (tmp_path / "model.pt").touch()
    return str(tmp_path / "model.pt")


@fuzzed(50, 11)
def test_rates(random):
    assert_rates_and_steps_are_finite(random)


@fuzzed(40, 12)
def test_searches(model_file, monkeypatch, random):
    assert_search_is_answered(random, model_file, monkeypatch)


@fuzzed(40, 13)
def test_texts(monkeypatch, random):
    assert_text_arrives(random, options.get_training_parser(), monkeypatch)


@fuzzed(100, 14)
def test_dictionaries(random):
    assert_dictionary_is_answered(random)


@fuzzed(60, 15)
def test_files(odd_files, monkeypatch, random):
    assert_file_is_refused(random, odd_files, monkeypatch)


@pytest.mark.slow
@fuzzed(1000, 16)
def test_numbers_texts_and_dictionaries_at_length(model_file, monkeypatch, random):
    assert_rates_and_steps_are_finite(random)
    assert_search_is_answered(random, model_file, monkeypatch)
    assert_text_arrives(random, options.get_training_parser(), monkeypatch)
    assert_dictionary_is_answered(random)


@pytest.mark.slow
@fuzzed(1000, 17)
def test_files_at_length(odd_files, monkeypatch, random):
    assert_file_is_refused(random, odd_files, monkeypatch)
