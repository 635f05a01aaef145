"""Sentences longer than ``--max-source-positions`` or ``--max-target-positions``, in every command."""

from types import SimpleNamespace

import numpy as np
import pytest
from fairseq.tasks import FairseqTask

from fairseq_reservoir.errors import InputError
from tests.support.commands import RUN, error_of, train

MODEL = "--arch transformer_tiny --encoder-layers 1 --decoder-layers 1 --batch-size 40 --no-epoch-checkpoints --max-update 2"
SKIP = "--skip-invalid-size-inputs-valid-test"
ONE_SIDE = "of 8 sentences are too long: the longest has 7 source tokens including the end of the sentence, but the model accepts"


@pytest.fixture(scope="module")
def model(toy_data, tmp_path_factory):
    """Return the checkpoint of a model with 1,024 positions."""
    folder = tmp_path_factory.mktemp("model")
    train(toy_data, *RUN, *MODEL.split(), "--disable-validation", "--save-dir", folder, begin=[])
    return folder / "checkpoint_last.pt"


def error_message(sizes, limits, indices=None, **flags):
    """Return the error message for sentences of these sizes in the split test."""
    dataset = SimpleNamespace(
        size=sizes.__getitem__, filter_indices_by_size=lambda indices, limits: ([], list(indices))
    )
    task = SimpleNamespace(datasets={"test": dataset})
    with pytest.raises(InputError) as refused:
        FairseqTask.filter_indices_by_size(task, np.arange(len(sizes)), dataset, limits, **flags)
    return str(refused.value)


def test_messages(monkeypatch):
    """The message has the longest length of each side that is too long."""
    head = "--valid-subset test: 2 of 2 sentences are too long: the longest has "
    tail = f"; {SKIP} omits them"
    source = "9 source tokens including the end of the sentence, but the model accepts 5 (--max-source-positions)"
    assert error_message([(9, 4), (7, 5)], (5, 5)) == head + source + tail
    both = f"{source}; 1,200 target tokens, but the model accepts 5 (--max-target-positions)"
    assert error_message([(9, 4), (7, 1200)], (5, 5)) == head + both + tail
    assert error_message([30, 20], 10) == head + "30 tokens, but the model accepts 10" + tail
    assert error_message([{"en-de": (3, 4)}] * 2, {"en-de": (2, 2)}).startswith(
        head + "{'en-de': (3, 4)} tokens, but the model accepts"
    )
    monkeypatch.setattr("sys.argv", ["fairseq-generate"])
    assert error_message([30, 20], 10).startswith("--gen-subset test: ")


def test_validation_data_is_refused_before_the_first_update(toy_data, tmp_path):
    flags = [*MODEL.split(), "--save-dir", tmp_path, "--max-source-positions", 5]
    error, status = error_of(toy_data, *flags, begin=RUN)
    expected = f"--valid-subset valid: 2 {ONE_SIDE} 5 (--max-source-positions); {SKIP} omits them"
    assert (error, status) == (f"fairseq-train: error: {expected}\n", 2)
    assert not list(tmp_path.glob("*.pt"))
    for flag in (SKIP, "--disable-validation"):
        assert error_of(toy_data, *flags, flag, begin=RUN) == ("", 0)


def test_generate(toy_data, model, run_fairseq, tmp_path):
    flags = ["--path", model, "--cpu", "--results-path", tmp_path, "--max-source-positions"]
    with pytest.raises(InputError, match=f"^--gen-subset test: 2 {ONE_SIDE} 4 "):
        run_fairseq("generate", toy_data, *flags, 4)
    run_fairseq("generate", toy_data, *flags, 4, SKIP)
    assert (tmp_path / "generate-test.txt").read_text().count("\nH-") == 6


@pytest.mark.parametrize("buffer", [1, 3])
def test_interactive_translates_the_other_lines(toy_data, model, run_fairseq, tmp_path, capsys, caplog, buffer):
    (tmp_path / "input").write_text("a b\na b c d e\nb\nc\nd e f g\na\n")
    flags = ["--path", model, "--cpu", "--input", tmp_path / "input", "--max-source-positions", 4]
    flags += ["--buffer-size", buffer, "--batch-size", buffer]
    caplog.set_level("WARNING")
    with pytest.raises(InputError, match="input: 2 lines are too long and not translated: 2, 5$"):
        run_fairseq("interactive", toy_data, *flags)
    out = capsys.readouterr().out
    assert [line.split("\t")[0] for line in out.splitlines() if line.startswith("H-")] == ["H-0", "H-2", "H-3", "H-5"]
    for number, length in ((2, 6), (5, 5)):
        tokens = f"{length} source tokens including the end of the sentence, but the model accepts 4 "
        assert f"line {number} is not translated, because it has {tokens}" in caplog.text
    run_fairseq("interactive", toy_data, *flags, SKIP)
    assert capsys.readouterr().out.count("\nH-") == 4
    (tmp_path / "input").write_bytes("a b\nä\n".encode("latin-1"))
    with pytest.raises(
        InputError, match=f"^--input {tmp_path}/input: is not UTF-8 \\(byte 0xe4\\); convert the text to UTF-8$"
    ):
        run_fairseq("interactive", toy_data, *flags)
