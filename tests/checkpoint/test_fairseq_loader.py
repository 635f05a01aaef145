"""fairseq's commands read exports like checkpoints, with the same results."""

import io
import sys
from importlib import import_module

import pytest
import torch
from fairseq import checkpoint_utils

from fairseq_reservoir.checkpoint import other_dictionary
from fairseq_reservoir.checkpoint.export import export
from fairseq_reservoir.errors import InputError
from fairseq_reservoir.fairseq_repairs.error_report import find_input_error
from fairseq_reservoir.freezing.description import DescribedInCheckpoint
from fairseq_reservoir.models.reservoir.transformer import ReservoirTransformer
from fairseq_reservoir.trainer.install import install
from tests.support.building import pad, sentences, shift
from tests.support.commands import USER_DIR, train
from tests.support.letters import WITH_RESERVOIRS


@pytest.fixture(scope="module")
def exported(every_kind, tmp_path_factory):
    out = tmp_path_factory.mktemp("exports") / "model.safetensors"
    export(every_kind.path, out)
    return out


def run(monkeypatch, command, *words):
    monkeypatch.setattr(sys, "argv", [f"fairseq-{command}", *map(str, words), "--user-dir", USER_DIR, "--cpu"])
    return import_module(f"fairseq_cli.{command}").cli_main()


def test_generate_also_without_stored_random_tensors(translate, every_kind, exported):
    regenerate = ["--model-overrides", "{'regenerate_weights': True}"]
    expected = translate(every_kind.path)
    assert translate(exported) == expected != []
    assert translate(exported, *regenerate) == translate(every_kind.path, *regenerate) == expected


def test_an_ensemble_of_both(translate, every_kind, exported):
    assert translate(f"{exported}:{every_kind.path}") == translate(f"{every_kind.path}:{every_kind.path}")


def test_model_overrides(translate, every_kind, exported):
    keep = "{'encoder_layers_to_keep': '0,2', 'decoder_layers_to_keep': '0,1,3'}"
    assert translate(exported, "--model-overrides", keep) == translate(every_kind.path, "--model-overrides", keep)


@pytest.mark.parametrize("overrides", [{"regenerate_weights": True}, {"regenerate_weights": True, "dropout": 0.0}])
def test_random_tensors_are_regenerated_only_in_our_models(every_kind, exported, toy_data, overrides, monkeypatch):
    """fairseq passes this option to any model, and its own models would ignore it."""
    overrides = {**overrides, "data": str(toy_data)}
    for path in (exported, every_kind.path):
        (model,), _ = checkpoint_utils.load_model_ensemble([str(path)], arg_overrides=overrides)
        assert model.regenerate_weights
    monkeypatch.delattr(DescribedInCheckpoint, "regenerate_weights")
    line = "^--regenerate-weights .*: works only with --arch reservoir_..., supermask_... and frozen_..., but .* is a reservoir_tr"
    with pytest.raises(InputError, match=line):
        checkpoint_utils.load_model_ensemble([str(every_kind.path)], arg_overrides=overrides)


@torch.no_grad()
def test_the_logits(every_kind, exported, toy_data):
    source, target = pad(sentences(3, 6)) % 12, pad(sentences(4, 5, seed=2)) % 12
    answers = []
    for path in (exported, every_kind.path):
        (model,), _ = checkpoint_utils.load_model_ensemble([str(path)], arg_overrides={"data": str(toy_data)})
        answers.append(model.eval()(source, torch.tensor([3, 6]), shift(target))[0])
    assert answers[0].equal(answers[1])


def test_interactive(monkeypatch, toy_data, every_kind, exported, capsys):
    answers = []
    for path in (exported, every_kind.path):
        monkeypatch.setattr(sys, "stdin", io.StringIO("a b c\n"))
        run(monkeypatch, "interactive", toy_data, "--path", path)
        answers.append([line for line in capsys.readouterr().out.splitlines() if line[:2] in ("H-", "P-")])
    assert answers[0] == answers[1] != []


def test_validate(monkeypatch, toy_data, every_kind, exported):
    printed = []
    monkeypatch.setattr(
        "fairseq.logging.progress_bar.SimpleProgressBar.print", lambda bar, stats, **_: printed.append(stats)
    )
    flags = ["--task", "translation", "--valid-subset", "valid", "--batch-size", 4, "--log-format", "simple"]
    for path in (exported, every_kind.path):
        run(monkeypatch, "validate", toy_data, "--path", path, *flags)
    assert len(printed) == 2 and printed[0]["loss"] == printed[1]["loss"] > 0


def test_from_pretrained(toy_data, every_kind, exported):
    hubs = [
        ReservoirTransformer.from_pretrained(str(path.parent), path.name, data_name_or_path=str(toy_data))
        for path in (exported, every_kind.path)
    ]
    found = [hub.translate(["a b c", "d"], max_len_b=10) for hub in hubs]
    assert found[0] == found[1]


def test_finetuning_begins_from_it(toy_data, every_kind, exported):
    flags = "--max-update 1 --no-save --disable-validation --reservoir-encoder {encoder} --reservoir-decoder {decoder}"
    flags = flags.format(**WITH_RESERVOIRS).split()
    losses = [train(toy_data, *flags, "--finetune-from-model", path).losses for path in (exported, every_kind.path)]
    assert losses[0] == losses[1] != []


@pytest.mark.parametrize("kind", ["export", "checkpoint"])
def test_other_dictionaries_are_refused(kind, translate, monkeypatch, make_corpus, exported, every_kind):
    other = make_corpus("other")
    (other / "dict.de.txt").write_text("".join(f"{word} 1\n" for word in "hgfedcba"))
    with pytest.raises(
        ValueError,
        match=r"the target dictionary of DATA \(12 entries, .*differs from that of the training \(12 entries",
    ):
        run(monkeypatch, "generate", other, "--path", exported if kind == "export" else every_kind.path)


def test_a_training_does_not_resume_with_other_dictionaries(make_corpus, toy_data, tmp_path, monkeypatch):
    monkeypatch.setenv(other_dictionary.ALLOW, "")  # put back at the end, as the flag sets it
    flags = ["--encoder-layers", 1, "--decoder-layers", 1, "--disable-validation", "--no-epoch-checkpoints"]
    flags += ["--save-dir", tmp_path]
    train(toy_data, *flags, "--max-update", 1)
    other = make_corpus("other")
    (other / "dict.de.txt").write_text("".join(f"{word} 1\n" for word in "hgfedcba"))
    with pytest.raises(
        ValueError,
        match=f"{tmp_path}/checkpoint_last.pt: the target dictionary of DATA .*differs from that of the training",
    ):
        train(other, *flags, "--max-update", 2)
    tuned = [*flags, "--max-update", 2, "--finetune-from-model", tmp_path / "checkpoint_last.pt", "--save-dir"]
    with pytest.raises(
        ValueError,
        match="the model's target dictionary and .* both have 12 entries, .*, or give --allow-other-dictionary",
    ):
        train(other, *tuned, tmp_path / "refused")
    assert len(train(other, *tuned, tmp_path / "tuned", other_dictionary.FLAG).losses) == 2


def test_a_truncated_file_is_one_line(translate, exported, tmp_path):
    (tmp_path / "cut.safetensors").write_bytes(exported.read_bytes()[:-5])
    with pytest.raises(ValueError) as refusal:
        translate(tmp_path / "cut.safetensors")
    assert str(find_input_error(refusal.value)).startswith(f"{tmp_path}/cut.safetensors: truncated")


def test_nothing_is_unpickled(exported, monkeypatch):
    monkeypatch.setattr(torch, "load", None)
    assert checkpoint_utils.load_checkpoint_to_cpu(str(exported))["model"]


def test_installing_twice_changes_nothing():
    before = checkpoint_utils.load_checkpoint_to_cpu
    install()
    assert checkpoint_utils.load_checkpoint_to_cpu is before
