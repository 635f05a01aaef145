"""``fairseq-reservoir probe`` on small trained models."""

import json
import re
import shutil

import pytest

from fairseq_reservoir import cli
from fairseq_reservoir.studies.probe import classifier

FIVE = ["token", "position", "length", "frequency", "copied"]


def printed(capsys, *words):
    cli.main(["probe", *map(str, words)])
    return capsys.readouterr().out


def refused(*words):
    with pytest.raises(SystemExit) as leaving:
        cli.main(["probe", *map(str, words)])
    assert "\n" not in str(leaving.value)
    return str(leaving.value)


@pytest.fixture
def one_penalty(monkeypatch):
    """A quarter of the classifiers."""
    monkeypatch.setattr(classifier, "PENALTIES", classifier.PENALTIES[-1:])


def test_a_translation_model(of_numbers, tmp_path, capsys):
    """Every token of a trained model can be identified by its embedding. The frozen layer is marked."""
    figure = tmp_path / "probes.svg"
    words = [of_numbers.path, of_numbers.data, "--split", "train", "--sentences", 100, "--tokens", 400]
    text = printed(capsys, *words, "--figure", figure)
    assert re.match(r"400 tokens of (\d\d|100) sentences \(train of ", text) and "2      T Transformer  frozen " in text
    assert figure.read_text().count("accuracy, %") == 2
    found = json.loads(printed(capsys, *words, "--json"))
    (model,) = found["checkpoints"]
    assert [layer["state"] for layer in model["layers"]] == ["trained", "trained", "frozen"]
    assert list(model["properties"]) == FIVE
    token = model["properties"]["token"]
    assert token["layers"][0]["accuracy"]["value"] > 0.95 > token["majority"]
    for result in token["layers"]:
        accuracy, control, selectivity = (result[name] for name in ("accuracy", "control", "selectivity"))
        assert selectivity["value"] == pytest.approx(accuracy["value"] - control["value"])
        assert 0 <= accuracy["low"] <= accuracy["value"] <= accuracy["high"] <= 1
        assert f"{100 * accuracy['value']:.1f} (" in text


def test_the_seed_decides_everything(of_numbers, capsys, one_penalty):
    words = [of_numbers.path, of_numbers.data, "--split", "train", "--sentences", 60, "--tokens", 200, "--json"]
    first, again = printed(capsys, *words), printed(capsys, *words)
    assert first == again != printed(capsys, *words, "--seed", 2)


def test_several_checkpoints(of_numbers, tmp_path, capsys, one_penalty):
    """Equal checkpoints have equal numbers. The table names each by the folder in which it differs."""
    folders = [tmp_path / name for name in ("one", "other")]
    for folder in folders:
        folder.mkdir()
        shutil.copy(of_numbers.path, folder / "checkpoint.pt")
    paths = [folder / "checkpoint.pt" for folder in folders]
    words = [*paths, of_numbers.data, "--split", "train,valid", "--sentences", 60, "--tokens", 200]
    text = printed(capsys, *words, "--figure", tmp_path / "probes.png")
    rows = [line.split(maxsplit=1) for line in text.splitlines() if line.startswith(("  one ", "  other "))]
    mine, others = ([row[1] for row in rows if row[0] == name] for name in ("one", "other"))
    assert len(mine) == 5 * 3 and mine == others
    assert (tmp_path / "probes.png").read_bytes().startswith(b"\x89PNG")


def test_bad_input(of_numbers, tmp_path):
    model, data = of_numbers.path, of_numbers.data
    assert "--split 'train,': must be one or several different names" in refused(model, data, "--split", "train,")
    assert "--split 'a,a': must be one or several different names" in refused(model, data, "--split", "a,a")
    assert "--split none: DATA " in refused(model, data, "--split", "none")
    assert "--sentences 3: must be from 20 to 1000000" in refused(model, data, "--sentences", 3)
    assert "--tokens 0: must be from 20" in refused(model, data, "--tokens", 0)
    assert "--seed -1: must be from 0" in refused(model, data, "--seed", -1)
    assert "DATA nowhere: no such folder" in refused(model, "nowhere")
    assert "CHECKPOINT nowhere.pt: no such file" in refused("nowhere.pt", data)
    assert "--figure a.gif: the name must end in .svg, .png or .pdf" in refused(model, data, "--figure", "a.gif")
    assert "no/a.svg: no is not a writable folder" in refused(model, data, "--figure", "no/a.svg")
    (tmp_path / "a.svg").touch()
    assert "a.svg: exists; --force replaces it" in refused(model, data, "--figure", tmp_path / "a.svg")


def test_other_dictionaries(of_numbers, toy_data):
    message = refused(of_numbers.path, toy_data, "--split", "train")
    assert f"DATA {toy_data}: the source dictionary" in message and "differs from that of the training" in message


def test_a_folder_without_dictionaries(of_numbers, tmp_path):
    """The command has no option --data, so the message names the positional argument."""
    missing = f"DATA {tmp_path}: does not contain the dictionaries of the model ("
    assert f"{missing}no file such as train.en-de.en.idx, " in refused(of_numbers.path, tmp_path)
    (tmp_path / "train.en-de.en.idx").touch()
    assert refused(of_numbers.path, tmp_path).endswith(f"{missing}{tmp_path}/dict.en.txt: no such file)")
    (tmp_path / "dict.en.txt").write_text("a b c\n")
    assert f"{missing}{tmp_path}/dict.en.txt: line 1, 'a b c', must be a word" in refused(of_numbers.path, tmp_path)


def test_too_few_sentences(of_numbers, toy_data, tmp_path):
    for name in ("dict.en.txt", "dict.de.txt"):
        (tmp_path / name).symlink_to(of_numbers.data / name)
    for file in toy_data.glob("valid.en-de.*"):
        (tmp_path / file.name).symlink_to(file)
    assert "sentences of 2 to" in refused(of_numbers.path, tmp_path, "--split", "valid")
