"""The model card of an export: its YAML header, its commands, and no path of the machine that trained the model."""

import json
import os
import re
import subprocess

import pytest
import yaml

from fairseq_reservoir import cli
from tests.support import programs

SIGNATURE = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"
BLEU = {"name": "BLEU", "score": 36.8, "signature": SIGNATURE, "verbose_score": "70.0/40.0/30.0/20.0"}


def export(model, folder, *flags):
    """Export a model to ``folder``, and return the header and the text of its card."""
    words = [str(model.path), str(folder / "model.safetensors"), "--card", str(folder / "README.md")]
    cli.main(["export", *words, *map(str, flags)])
    text = (folder / "README.md").read_text()
    begin, header, body = text.split("---\n", 2)
    assert begin == ""
    return yaml.safe_load(header), body


def run_commands(body, folder):
    """Run the block of commands of a card with bash in the folder of the export."""
    (block,) = re.findall(r"^```sh\n(.*?)^```", body, flags=re.DOTALL | re.MULTILINE)
    variables = programs.environment()
    return subprocess.run(["bash", "-euc", block], cwd=folder, env=variables, capture_output=True, text=True)


def test_a_translator_with_all_flags(of_numbers, tmp_path):
    (tmp_path / "bleu.json").write_text(json.dumps(BLEU))
    header, body = export(
        of_numbers, tmp_path, "--sentencepiece-model", of_numbers.pieces, "--card-license", "mit",
        "--card-data", "# Numbers\nin words", "--card-bleu", tmp_path / "bleu.json",
    )  # fmt: skip
    assert header == {
        "language": ["en", "de"],
        "license": "mit",
        "library_name": "fairseq-reservoir",
        "pipeline_tag": "translation",
        "tags": ["fairseq", "fairseq-reservoir", "reservoir-transformer-tiny"],
        "metrics": ["sacrebleu"],
    }
    size = (tmp_path / "model.safetensors").stat().st_size
    for line in (
        "# en-de, reservoir transformer tiny, LT + TL",
        "| Encoder's plan | LT |",
        "| Decoder's plan | TL |",
        "| Updates | 150 |",
        f"| File | `model.safetensors`, {size:,} bytes |",
        " Numbers in words",
        "| BLEU | 36.8 | `" + SIGNATURE.replace("|", "\\|") + "` |",
    ):
        assert line in body.splitlines(), line
    # 72 pieces of 16 numbers, shared, and the layers of plans LT and TL: the totals of `fairseq-reservoir plan`
    total = next(line for line in body.splitlines() if line.startswith("total ")).split()
    assert f"| Parameters | {total[1]}, {total[2]} of them trained |" in body
    for private in (str(of_numbers.path.parent), str(tmp_path), os.path.expanduser("~")):
        assert private not in body
    (tmp_path / "text.en").write_text("seventeen\none\n")
    ended = run_commands(body, tmp_path)
    assert (ended.returncode, ended.stderr, ended.stdout.count("\n")) == (0, "", 1)
    assert (tmp_path / "text.de").read_text().count("\n") == 2


def test_without_text_and_flags(of_numbers, tmp_path):
    """fairseq-generate needs the folder of the dictionaries."""
    header, body = export(of_numbers, tmp_path)
    assert header.keys() == {"language", "library_name", "pipeline_tag", "tags"}
    assert "Not stated." in body and "## Scores" not in body
    (tmp_path / "data-bin").symlink_to(of_numbers.data)
    ended = run_commands(body, tmp_path)
    assert ended.returncode == 0 and "Generate test with beam=5" in ended.stdout + ended.stderr, ended.stderr


def test_a_compact_file_needs_another_package(of_numbers, tmp_path):
    pytest.importorskip("constriction")
    assert "constriction" not in export(of_numbers, tmp_path)[1]
    assert "also run `pip install constriction`" in export(of_numbers, tmp_path, "--compact", "--force")[1]


def test_a_language_that_yaml_reads_as_false(of_numbers, tmp_path, monkeypatch):
    from fairseq_reservoir.checkpoint import model_card

    monkeypatch.setattr(model_card, "_languages", lambda source, text: ["no", "de"])
    assert export(of_numbers, tmp_path)[0]["language"] == ["no", "de"]


@pytest.mark.parametrize(
    "flags, message",
    [
        (["--card-license", "mit"], "--card-license mit: has no effect without --card FILE.md"),
        (["--card", "{}/card.txt"], "--card {}/card.txt: the name must end in .md"),
        (["--card", "{}/old.md"], "--card {}/old.md: exists; --force replaces it"),
        (["--card", "{}/none/a.md"], "--card {}/none/a.md: {}/none is not a writable folder"),
        (["--card", "{}/a.md", "--card-bleu", "{}/none"], "--card-bleu {}/none: no such file"),
        (
            ["--card", "{}/a.md", "--card-bleu", "{}/old.md"],
            "--card-bleu {}/old.md: not the JSON that sacrebleu prints",
        ),
        (
            ["--card", "{}/a.md", "--card-bleu", "{}/bare.json"],
            "--card-bleu {}/bare.json: name, score or signature is missing",
        ),
    ],
)
def test_refusals(of_numbers, tmp_path, flags, message):
    """Nothing is written."""
    (tmp_path / "old.md").write_text("mine")
    (tmp_path / "bare.json").write_text('[{"name": "BLEU", "score": 36.8}]')
    before = sorted(tmp_path.iterdir())
    words = [str(of_numbers.path), str(tmp_path / "m.safetensors"), *(flag.format(tmp_path) for flag in flags)]
    with pytest.raises(SystemExit, match=re.escape(message.replace("{}", str(tmp_path)))):
        cli.main(["export", *words])
    assert sorted(tmp_path.iterdir()) == before and (tmp_path / "old.md").read_text() == "mine"
