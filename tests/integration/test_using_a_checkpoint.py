"""All commands of fairseq and its Python interface use a trained checkpoint without any flag of ours."""

import io
import sys
from importlib import import_module

import pytest
import torch
from fairseq import checkpoint_utils

from fairseq_reservoir.models.reservoir.transformer import ReservoirTransformer
from tests.support.commands import USER_DIR, train
from tests.support.letters import WITH_EVERY_KIND

RUN = "--reservoir-encoder {encoder} --reservoir-decoder {decoder} --max-update 12 --lr 0.005".format(
    **WITH_EVERY_KIND
).split()


@pytest.fixture(scope="module")
def run_and_folder(toy_data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoints")
    return train(toy_data, *RUN, "--save-dir", folder), folder


def run(monkeypatch, command, *words):
    words += ("--max-len-b", 10) * (command in ("generate", "interactive"))
    monkeypatch.setattr(sys, "argv", [f"fairseq-{command}", *map(str, words), "--user-dir", USER_DIR, "--cpu"])
    return import_module(f"fairseq_cli.{command}").cli_main()


def test_loading_gives_the_model_back(run_and_folder):
    trained, folder = run_and_folder
    (model,), _ = checkpoint_utils.load_model_ensemble([str(folder / "checkpoint_last.pt")])
    assert model.slot_table == trained.model.slot_table
    assert all(torch.equal(tensor, trained.weights[name]) for name, tensor in model.state_dict().items())


def test_from_pretrained_translates(toy_data, run_and_folder):
    hub = ReservoirTransformer.from_pretrained(
        str(run_and_folder[1]), "checkpoint_last.pt", data_name_or_path=str(toy_data)
    )
    one, two = hub.translate(["a b c", "d e"], beam=2)
    assert isinstance(one, str) and hub.translate("a b c", beam=2) == one


def test_generate(monkeypatch, toy_data, run_and_folder, tmp_path):
    checkpoint = run_and_folder[1] / "checkpoint_last.pt"
    run(monkeypatch, "generate", toy_data, "--path", checkpoint, "--beam", 2, "--results-path", tmp_path)
    lines = (tmp_path / "generate-test.txt").read_text().splitlines()
    assert sorted(line.split("\t")[0] for line in lines if line.startswith("H-")) == [f"H-{i}" for i in range(8)]
    assert lines[-1].startswith("Generate test with beam=2: BLEU4 = ")


def test_generate_from_some_of_the_layers(monkeypatch, toy_data, run_and_folder, tmp_path):
    keep = '{"encoder_layers_to_keep": "0,2,4"}'
    checkpoint = run_and_folder[1] / "checkpoint_last.pt"
    run(monkeypatch, "generate", toy_data, "--path", checkpoint, "--model-overrides", keep, "--results-path", tmp_path)
    assert "BLEU4" in (tmp_path / "generate-test.txt").read_text()


def test_validate(monkeypatch, capfd, toy_data, run_and_folder):
    checkpoint = run_and_folder[1] / "checkpoint_last.pt"
    # Unlike the other commands, fairseq-validate has no default task.
    flags = ["--task", "translation", "--valid-subset", "valid", "--batch-size", 4, "--log-format", "simple"]
    printed = []
    monkeypatch.setattr(
        "fairseq.logging.progress_bar.SimpleProgressBar.print", lambda bar, stats, **_: printed.append(stats)
    )
    run(monkeypatch, "validate", toy_data, "--path", checkpoint, *flags)
    trained = checkpoint_utils.load_checkpoint_to_cpu(str(checkpoint))["extra_state"]["val_loss"]
    assert printed[0]["loss"] == pytest.approx(trained, abs=1e-3)


def test_interactive(monkeypatch, capsys, toy_data, run_and_folder):
    monkeypatch.setattr(sys, "stdin", io.StringIO("a b c\nd e\n"))
    run(monkeypatch, "interactive", toy_data, "--path", run_and_folder[1] / "checkpoint_last.pt", "--beam", 2)
    starts = [line.split("\t")[0] for line in capsys.readouterr().out.splitlines()]
    assert [start for start in starts if start.startswith("H-")] == ["H-0", "H-1"]
