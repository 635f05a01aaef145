"""Every change to fairseq is a repair or is listed in ``install.HOOKS``."""

import inspect
import os
import sys
from pathlib import Path

import fairseq.trainer
import fairseq_cli.train

import fairseq_reservoir
from fairseq_reservoir.fairseq_repairs.in_order import REPAIRS
from fairseq_reservoir.fairseq_repairs.repair import WITHOUT, hooks_of
from fairseq_reservoir.trainer.install import HOOKS, install
from fairseq_reservoir.trainer.reservoir_trainer import ReservoirTrainer
from tests.support.warm_start import be_code, run_command, run_function

PACKAGE = Path(fairseq_reservoir.__file__).parent


def functions_of_fairseq():
    """Yield (owner, name, function) for every function in the modules and classes of fairseq."""
    for module in [m for name, m in sys.modules.items() if name.partition(".")[0] in ("fairseq", "fairseq_cli") and m]:
        classes = [
            value for value in vars(module).values() if inspect.isclass(value) and value.__module__ == module.__name__
        ]
        for owner in (module, *classes):
            for name, value in list(vars(owner).items()):
                function = getattr(value, "__func__", value)
                if inspect.isfunction(function):
                    yield owner, name, function


def test_every_change_is_listed():
    listed, hooks_found = {(hook.__module__, hook.__qualname__) for _, _, hook in HOOKS}, 0
    for owner, name, function in functions_of_fairseq():
        for hook in hooks_of(function):
            hooks_found += 1
            assert (
                hook.__module__.startswith("fairseq_reservoir.fairseq_repairs.")
                or (hook.__module__, hook.__qualname__) in listed
            ), name
        written_by_us = Path(inspect.unwrap(function).__code__.co_filename).is_relative_to(PACKAGE)
        assert not written_by_us or function.__module__.startswith("fairseq_reservoir."), (
            f"{owner}.{name}: replaced without wrap()"
        )
    assert hooks_found > len(HOOKS)


def test_commands_train_with_the_trainer_of_the_plugin():
    assert fairseq.trainer.Trainer is fairseq_cli.train.Trainer is ReservoirTrainer


def test_trainer_imported_before_the_plugin():
    script = (
        "from fairseq.trainer import Trainer; Earlier = type('Earlier', (Trainer,), {}); import fairseq_reservoir\n"
        "try: Earlier.__new__(Earlier)\n"
        "except Exception as error: print(error)\n"
        "print(type(Trainer.__new__(Trainer)).__name__)"
    )
    finished = run_function(be_code, script)
    refused, name = finished.stdout.splitlines()[-2:]
    assert refused.startswith("Earlier was derived from fairseq's Trainer before") and name == "ReservoirTrainer"


def test_no_function_has_two_hooks():
    for _, name, function in functions_of_fairseq():
        # hydra_start adds a hook to call_main when its callback runs.
        hooks = [hook for hook in hooks_of(function) if not hook.__module__.endswith(".hydra_start")]
        assert len(hooks) <= 1, f"{name}: {hooks}"


def test_no_method_of_fairseqs_trainer_is_changed():
    assert not [
        name
        for _, name, function in functions_of_fairseq()
        if "Trainer." in function.__qualname__ and hooks_of(function)
    ]
    assert len(HOOKS) <= 12


def test_installing_twice_changes_nothing():
    before = {(owner, name): function for owner, name, function in functions_of_fairseq()}
    install()
    assert before == {(owner, name): function for owner, name, function in functions_of_fairseq()}


def test_repairs_have_unique_names_and_a_purpose():
    assert len({one.name for one in REPAIRS}) == len(REPAIRS)
    assert all(one.state == "applied" and 20 < len(one.purpose) < 100 for one in REPAIRS)


def test_a_repair_is_switched_off_by_its_name():
    script = (
        "import fairseq_reservoir; from fairseq.data import data_utils; from fairseq_reservoir.fairseq_repairs.in_order import REPAIRS;"
        " print(hasattr(data_utils.batch_by_size, 'hook'), {one.name: one.state for one in REPAIRS}['last-batch'])"
    )
    finished = run_function(be_code, script, env=os.environ | {WITHOUT: "last-batch"})
    assert finished.stdout.splitlines()[-1] == "False switched off", finished.stderr


def test_an_unknown_name_is_one_line_of_the_command():
    finished = run_command("fairseq-train", "nowhere", "--user-dir", PACKAGE, env=os.environ | {WITHOUT: "batch"})
    assert finished.returncode == 2
    assert finished.stderr.splitlines()[-1].startswith(
        f"fairseq-train: error: {WITHOUT} batch: no such repair; choose from input-errors, "
    )
    assert "Traceback" not in finished.stderr
