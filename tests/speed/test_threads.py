"""Flag --threads: valid numbers and error messages."""

import sys

import fairseq_cli.train
import pytest
import torch

from fairseq_reservoir.speed import threads
from tests.support.commands import command_line, error_of, train

PLAN = ("--reservoir-encoder", "LT", "--reservoir-decoder", "L", "--no-save", "--disable-validation")


@pytest.fixture(autouse=True)
def restore_threads(monkeypatch):
    monkeypatch.setenv(threads.THREADS, "")
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_a_number_sets_torchs_threads(toy_data):
    train(toy_data, *PLAN, "--max-update", 1, "--threads", 3)
    assert torch.get_num_threads() == 3


@pytest.mark.parametrize("text", ["0", "-1", "many", "1.5", "²", "1025", "9" * 25])
def test_invalid_values_are_refused(toy_data, tmp_path, text):
    errors, status = error_of(toy_data, *PLAN, "--threads", text)
    assert (errors.splitlines()[-1], status) == (
        f"fairseq-train: error: --threads {text} (or {threads.THREADS}): must be a whole number from 1 to 1024", 2
    )  # fmt: skip


@pytest.mark.parametrize("text", ["", "  "])
def test_an_empty_value_is_refused(toy_data, text):
    errors, status = error_of(toy_data, *PLAN, "--threads", text)
    message = f"fairseq-train: error: --threads {text!r}: is empty; give a number, or remove the flag"
    assert (errors.splitlines()[-1], status) == (message, 2)


def test_auto_was_removed(toy_data):
    errors, status = error_of(toy_data, *PLAN, "--threads", "auto")
    assert (
        "--threads auto" in errors
        and ": was removed; give a number" in errors
        and (errors.count("\n"), status) == (1, 2)
    )


def test_without_the_flag_torchs_threads_are_unchanged(toy_data):
    before = torch.get_num_threads()
    train(toy_data, *PLAN, "--max-update", 1)
    assert torch.get_num_threads() == before


def test_training_help_names_the_command_for_other_flags(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", command_line("no-data", "--help"))
    with pytest.raises(SystemExit):
        fairseq_cli.train.cli_main()
    assert capsys.readouterr().out.endswith("Flags of layers, freezing and masks: fairseq-reservoir plan --help\n")
