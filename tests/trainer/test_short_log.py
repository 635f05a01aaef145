"""The log of a training before its first update, and the printed details with ``LOGLEVEL=DEBUG``."""

import logging
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from fairseq_reservoir.trainer import short_log
from tests.support.commands import command_line

PLAN = ("--reservoir-encoder", "LTLTL", "--reservoir-decoder", "LLLLLL", "--share-all-embeddings", "--log-interval", 1)


def _log(data, level):
    flags = command_line(data, *PLAN, "--max-update", 1, "--no-save", "--disable-validation", "--log-format", "simple")
    # A process of its own, because fairseq reads LOGLEVEL when it is imported.
    ended = subprocess.run(
        [Path(sys.executable).parent / "fairseq-train", *flags[1:]],
        env=os.environ | {"LOGLEVEL": level, "PYTHONWARNINGS": "default"},
        capture_output=True,
        text=True,
    )
    assert ended.returncode == 0, ended.stderr
    before, first_update, _ = (ended.stdout + ended.stderr).partition("train_inner")
    assert first_update
    return before


def test_a_training_logs_less_than_30_lines_before_its_first_update(toy_data):
    before = _log(toy_data, "INFO")
    assert len(before.splitlines()) < 30, before
    # The table stands for the printed modules: 5 + 6 layers, of which equal neighbours are one row.
    assert "decoder.layers.0-5" in before and "encoder.layers.1 " in before and "ModuleList" not in before
    assert "Warning" not in before


@pytest.mark.slow
def test_debugging_keeps_all_lines(toy_data):
    before = _log(toy_data, "DEBUG")
    assert "ModuleList" in before and "detected shared parameter" in before and "Start iterating over samples" in before


class Described:
    slot_table = "table"


@pytest.mark.parametrize("message, level, kept", [
    ("loaded 3 examples from: data-bin/train", logging.INFO, False),
    ("loaded 3 examples from: data-bin/train", logging.WARNING, True),
    ("data-bin train en-de 3 examples", logging.INFO, True),
    (Described(), logging.INFO, False),
    (object(), logging.INFO, True),
])  # fmt: skip
def test_kept_records(monkeypatch, message, level, kept):
    monkeypatch.setattr(logging.getLogger(), "level", logging.INFO)
    logging.getLogger().manager._clear_cache()  # levels are cached
    assert short_log.keep(logging.LogRecord("fairseq.data.data_utils", level, "", 0, message, None, None)) is kept


def test_filters_of_the_user_come_first():
    message, category = (
        "Support for mismatched key_padding_mask and attn_mask is deprecated. Use same type",
        UserWarning,
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.resetwarnings()
        short_log.ignore_warnings()
        warnings.warn(message, category)
        assert caught == []
        warnings.simplefilter("always")
        warnings.warn(message, category)
        assert len(caught) == 1
