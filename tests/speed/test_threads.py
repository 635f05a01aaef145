"""--threads: numbers and refusals."""

import sys

import fairseq_cli.train
import pytest
import torch

from fairseq_reservoir.speed import threads
from tests.support.commands import command_line, error_of, train

PLAN = ("--reservoir-encoder", "LT", "--reservoir-decoder", "L", "--no-save", "--disable-validation")


@pytest.fixture(autouse=True)
def as_before(monkeypatch):
    monkeypatch.setenv(threads.THREADS, "")
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def test_a_number(toy_data):
    train(toy_data, *PLAN, "--max-update", 1, "--threads", 3)
    assert torch.get_num_threads() == 3


@pytest.mark.parametrize("text", ["0", "-1", "many", "1.5", "²", "1025", "9" * 25])
def test_others_are_refused_before_data_is_read(toy_data, tmp_path, text):
    errors, status = error_of(toy_data, *PLAN, "--threads", text)
    assert (errors.splitlines()[-1], status) == (
        f"fairseq-train: error: --threads {text} (or {threads.THREADS}): must be a whole number from 1 to 1024", 2
    )  # fmt: skip


@pytest.mark.parametrize("text", ["", "  "])
def test_empty_is_not_the_same_as_left_out(toy_data, text):
    errors, status = error_of(toy_data, *PLAN, "--threads", text)
    message = f"fairseq-train: error: --threads {text!r}: is empty; give a number, or leave it out"
    assert (errors.splitlines()[-1], status) == (message, 2)


def test_auto_was_removed(toy_data):
    errors, status = error_of(toy_data, *PLAN, "--threads", "auto")
    assert (
        "--threads auto" in errors
        and ": was removed; give a number" in errors
        and (errors.count("\n"), status) == (1, 2)
    )


def test_without_the_flag_the_number_stays(toy_data):
    before = torch.get_num_threads()
    train(toy_data, *PLAN, "--max-update", 1)
    assert torch.get_num_threads() == before


def test_help_of_a_training_says_where_the_other_flags_are(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", command_line("no-data", "--help"))
    with pytest.raises(SystemExit):
        fairseq_cli.train.cli_main()
    assert capsys.readouterr().out.endswith("Flags of layers, freezing and masks: fairseq-reservoir plan --help\n")
