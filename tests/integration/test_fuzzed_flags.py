"""Any value of our flags works, or gives one line that names the flag, without writing files and within ten seconds.

The flags are read from the dataclasses and parsers that define them, and values also from their help texts. New flags are therefore
tested automatically.
"""

import argparse
import contextlib
import dataclasses
import io
import json
import os
import re
import shutil
import time
import warnings

import pytest
import torch
import yaml
from hypothesis import HealthCheck, Phase, given, seed, settings, strategies as st

from fairseq_reservoir import cli
from fairseq_reservoir.commands import report as report_command, sweep as sweep_command
from fairseq_reservoir.options.component_options import ComponentOptions
from fairseq_reservoir.options.for_fairseq.language_model import (
    ReservoirLanguageModelConfig,
    SupermaskLanguageModelConfig,
)
from fairseq_reservoir.options.for_fairseq.roberta import ReservoirRobertaOptions, SupermaskRobertaOptions
from fairseq_reservoir.options.freeze_skip_options import FreezeSkipOptions
from fairseq_reservoir.options.layer_options import ReservoirOptions
from fairseq_reservoir.options.supermask_options import MaskOptions
from fairseq_reservoir.options.vector_options import WordVectorOptions
from fairseq_reservoir.speed.threads import THREADS
from tests.support.commands import RUN, error_of
from tests.support.logs import Writer

SECONDS = 10
TINY_LM = "--task language_modeling --tokens-per-sample 8 --sample-break-mode eos"
# Architectures with the flags that they need.
MODELS = {
    "reservoir_transformer_tiny": ("", ReservoirOptions),
    "supermask_one_layer_transformer_tiny": ("", MaskOptions),
    "frozen_transformer_tiny": ("", ComponentOptions),
    "reservoir_transformer_lm_tiny": (TINY_LM, ReservoirLanguageModelConfig),
    "supermask_one_layer_transformer_lm_tiny": (TINY_LM, SupermaskLanguageModelConfig),
    "reservoir_roberta_tiny": ("--task masked_lm --tokens-per-sample 8", ReservoirRobertaOptions),
    "supermask_one_layer_roberta_tiny": ("--task masked_lm --tokens-per-sample 8", SupermaskRobertaOptions),
    "transformer_tiny": ("--optimizer freeze_skip", FreezeSkipOptions),
}
OURS = {option.name for options in (ReservoirOptions, MaskOptions, WordVectorOptions, SupermaskRobertaOptions, FreezeSkipOptions)
        for option in dataclasses.fields(options)}  # fmt: skip
# fairseq's architectures from which our models are built, and a flag of every training.
FAIRSEQS = """--dropout --attention-dropout --encoder-layerdrop --decoder-layerdrop --encoder-layers --decoder-layers --save-dir
    --encoder-layers-to-keep --decoder-layers-to-keep --threads""".split()
HOSTILE = [
    "", " ", "-1", "0", "00", "1", "2", "0.5", "1.0", "-0.0", "nan", "inf", "-inf", "1e999", "1e-320", "0.9999999", "1_000",
    "9" * 25, "9" * 5000, "1000000", "-" + "9" * 30, "1e6", "0x10", "²", "٣", "é", "\n", "\t", "\\", "'", '"', "`",
    "*", "%s", "{}", "{", "[",
    "${oc.env:HOME}", "${", "$HOME", "null", "None", "True", ",", ":", ";", "-", "--", "=", "..", "/", "a,b", "a:b", "1:2", "2:1",
    "x" * 5000, "1,2,3", "0:emb", "0:-emb", "0-1", "1-0", "\x7f", "LFL", "T", "emb", "layers.0",
]  # fmt: skip

# Values that no flag accepts.
NONSENSE = {" ", "nan", "\n", "9" * 5000, "${oc.env:HOME}", "\x7f"}


def words_of(text):
    """Words of a help text that may be values: choices, examples, numbers."""
    return sorted(
        {word for word in re.findall(r"[^\s()\[\]\"'`|]+", text or "") for word in (word.strip(".,;:"),) if word}
    )


def mutated(random, word):
    """A value similar to another one, with up to two parts removed, repeated or replaced."""
    for _ in range(random.randint(0, 2)):
        at, until = sorted((random.randint(0, len(word)), random.randint(0, len(word))))
        word = word[:at] + random.choice([*HOSTILE, word[at:until] * 3]) + word[until:]
    return word


def value(random, help_text):
    """A random value of a flag: a hostile one, one from its help, or a mixture."""
    return (
        random.choice(HOSTILE) if random.random() < 0.4 else mutated(random, random.choice([*words_of(help_text), "0"]))
    )


def model_and_flags(random):
    """Flags of an architecture, and one to three flags of ours or of fairseq's that set sizes, as ``--flag=value``."""
    arch = random.choice(sorted(MODELS))
    needs, options = MODELS[arch]
    fields = [field for field in dataclasses.fields(options) if field.name in OURS and not field.name.startswith("_")]
    flags = {}
    for _ in range(random.randint(1, 3)):
        if random.random() < 0.1:
            # fairseq's own class splits a list as text, whatever its content.
            own = arch == "transformer_tiny"
            flag = random.choice([flag for flag in FAIRSEQS if not (own and flag.endswith("-to-keep"))])
            flags[flag] = f"{flag}={random.choice(HOSTILE)}"
        else:
            field = random.choice(fields)
            flag = f"--{field.name.replace('_', '-')}"
            flags[flag] = flag if field.type is bool else f"{flag}={value(random, field.metadata['help'])}"
    return f"--arch {arch} {needs}".split(), list(flags.values())


def problem(flags, answer, status, seconds):
    """Describe a problem, or return None: an error that is not one line with one of the flags, or that took too long."""
    if seconds > SECONDS:
        return f"took {seconds:.1f} s"
    if status == 0:
        return next((f"accepted {flag[:200]!r}" for flag in flags if flag.partition("=")[2] in NONSENSE), None)
    given = {flag.split("=")[0] for flag in flags}
    if "Traceback" in answer:
        return f"traceback: {answer.splitlines()[-1][:300]}"
    if answer.count("\n") != 1 or not answer.endswith("\n") or "error: " not in answer or len(answer) > 2000:
        return f"not one line: {answer[:300]!r}"
    if not any(flag in answer for flag in given):
        return f"names none of {given}: {answer[:300]}"
    return None


def answer_of(words):
    """Run ``fairseq-reservoir`` in this process. Return its stderr and exit status."""
    errors = io.StringIO()
    with contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            cli.main(words)
            status = 0
        except SystemExit as leaving:
            status = leaving.code
        except BaseException as error:
            status = 1
            errors.write(f"Traceback\n{type(error).__name__}: {error}")
    if isinstance(status, str):  # the interpreter prints it
        errors.write(f"{status}\n")
        status = 1
    return errors.getvalue(), status


def problem_of_training(data, folder, model, flags):
    """Train one update. ``folder`` must stay empty after an error."""
    begin = time.process_time()
    run = [*RUN, "--max-update", "1", "--no-save", "--disable-validation", "--save-dir", str(folder / "checkpoints")]
    answer, status = error_of(data, *flags, begin=[*model, *run])
    found = problem(flags, answer, status, time.process_time() - begin)
    written = [path for path in folder.rglob("*") if path.is_file()]
    return found or (f"wrote {written}" if written else None)


def problem_of_plan(model, flags):
    flags = [
        flag for flag in flags if not flag.startswith(("--save-dir", "--start-"))
    ]  # a plan saves nothing and reads no model
    begin = time.process_time()
    answer, status = answer_of(["plan", *model, *flags, "--source-words", "100"])
    return problem(flags, answer, status, time.process_time() - begin)


def options_of(command):
    """Flags of a command of ``fairseq-reservoir`` except --help, as (flag, whether it takes a value, help)."""
    parser = argparse.ArgumentParser()
    command.add_parser(parser.add_subparsers())
    (choices,) = [action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    (inner,) = choices.values()
    return [
        (action.option_strings[-1], action.nargs != 0, action.help)
        for action in inner._actions
        if action.option_strings and "--help" not in action.option_strings
    ]


LINE = '{"epoch": 1, "valid_loss": "9.5", "valid_bleu": "3.1", "valid_num_updates": "20"}'


def log(random):
    """Log of a run with some lines that fairseq does not write."""
    writer = Writer("/a", text=random.random() < 0.5).start()
    for update in range(5, 45, 5):
        writer.inner(update, 1, 100, update)
        if update % 20 == 0:
            writer.valid(update, loss=9.5 - update / 20, bleu=update).epoch(update, 4, 400, update)
    lines = [*writer.done().lines, LINE]
    for _ in range(random.randint(0, 4)):
        at = random.randrange(len(lines))
        lines[at] = mutated(
            random, re.sub(r"\d+(\.\d+)?", lambda number: random.choice([number[0], *HOSTILE]), lines[at], count=2)
        )
        lines[at] = lines[at].replace(
            "x" * 100, random.choice(["epoch 1:", "{'_name': ", "a", "'common': ", '{"epoch": ']) * 1000
        )
    return "\n".join(lines)


def problem_of_report(folder, random):
    """Make a report without figures of two runs with broken logs, and describe a problem if there is one."""
    for name in ("runs/dense-1", "runs/other-1"):
        (folder / name).mkdir(parents=True, exist_ok=True)
        (folder / name / "train.log").write_text(log(random), errors="replace")
    flags = [
        f"{flag}={value(random, text)}" if takes_value else flag
        for flag, takes_value, text in random.sample(options_of(report_command), random.randint(0, 2))
        if flag != "--out"
    ]
    out, begin = folder / "out", time.process_time()
    answer, status = answer_of(["report", str(folder / "runs"), "--out", str(out), "--no-figures", *flags])
    took = time.process_time() - begin
    found = problem([*flags, "RUNS", "--metric", "--target"], answer, status, took)
    written = list(out.rglob("*")) if status and out.exists() else []
    shutil.rmtree(out, ignore_errors=True)
    return found or (f"wrote {written}" if written else None)


GRID = {
    "command": "true data --max-update 3",
    "axes": {"lr": ["1e-3", "2e-3"], "seed": ["1", "2"], "fast": ["yes", "no"]},
    "environment": {"OMP_NUM_THREADS": "1"},
    "arms": {"plain": "", "drop": "--encoder-layerdrop 0.2"},
    "exclude": [{"lr": "2e-3", "arm": "drop"}],
    "then": ["true {out}/checkpoint_best.pt"],
}


def grid(random):
    """A grid file with some wrong keys or values, sometimes not even YAML."""
    found = json.loads(json.dumps(GRID))
    for _ in range(random.randint(1, 3)):
        key = random.choice([*found, random.choice(HOSTILE)])
        broken = random.choice(
            [*HOSTILE, [], {}, None, 3, True, [[]], [{}], [None], {"a": {"b": "c"}}, [str(i) for i in range(3000)]]
        )
        inner = found.get(key)
        if isinstance(inner, dict) and inner and random.random() < 0.7:
            name = random.choice([*inner, random.choice(HOSTILE)])
            inner[name] = broken
        else:
            found[key] = broken
    text = yaml.safe_dump(found)
    return mutated(random, text) if random.random() < 0.3 else text


def problem_of_sweep(folder, random):
    """Run a sweep's dry run of a broken grid."""
    (folder / "grid.yaml").write_text(grid(random), errors="replace")
    flags = [
        f"{flag}={value(random, text)}" if takes_value else flag
        for flag, takes_value, text in random.sample(options_of(sweep_command), random.randint(0, 2))
        if flag not in ("--out", "--slurm")
    ]
    begin = time.process_time()
    answer, status = answer_of(["sweep", str(folder / "grid.yaml"), "--out", str(folder / "out"), "--dry-run", *flags])
    found = problem([*flags, "GRID", "--out"], answer, status, time.process_time() - begin)
    return found or ("wrote --out" if (folder / "out").exists() else None)


def fuzzed(examples, number):
    """Run a test for ``examples`` seeded draws. A failure is printed with its flags. Examples are not shrunk."""

    def decorate(test):
        chosen = settings(
            max_examples=examples,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        return seed(number)(chosen(given(random=st.randoms(use_true_random=True))(test)))

    return decorate


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    """Run elsewhere, because a value may be the name of a folder, as for --save-dir, or a number of threads, which stays set."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(THREADS, "")
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def assert_flags_are_answered(data, folder, random):
    os.environ[THREADS] = ""  # the number from the previous example
    model, flags = model_and_flags(random)
    problems = {"train": problem_of_training(data, folder, model, flags)}
    if "freeze_skip" not in model:  # its flags belong to an optimizer, which a plan does not have
        problems["plan"] = problem_of_plan(model, flags)
    assert not any(problems.values()), f"{[*model, *flags]}: {problems}"


@fuzzed(25, 1)
def test_flags_of_models(toy_data, tmp_path, random):
    assert_flags_are_answered(toy_data, tmp_path, random)


@fuzzed(40, 2)
def test_logs_and_flags_of_reports(tmp_path, random):
    assert not (found := problem_of_report(tmp_path, random)), found


@fuzzed(50, 3)
def test_grids_and_flags_of_sweeps(tmp_path, random):
    assert not (found := problem_of_sweep(tmp_path, random)), found


@pytest.mark.slow
@fuzzed(1000, 4)
def test_flags_of_models_at_length(toy_data, tmp_path, random):
    assert_flags_are_answered(toy_data, tmp_path, random)


@pytest.mark.slow
@fuzzed(1000, 5)
def test_reports_and_sweeps_at_length(tmp_path, random):
    for find in (problem_of_report, problem_of_sweep):
        assert not (found := find(tmp_path, random)), found
