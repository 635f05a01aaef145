"""The page of the papers' experiments: all 37 are listed, each command is accepted, and papers' figures are marked."""

import argparse
import re
import shlex
from pathlib import Path

import pytest
import yaml
from fairseq import options
from fairseq.utils import import_user_module

from fairseq_reservoir import cli
from tests.examples.test_multi30k import EXAMPLES, bash, commands_in
from tests.examples.test_recipes_of_papers import MINI

import_user_module(argparse.Namespace(user_dir=str(EXAMPLES / "fpt")))  # before fairseq makes its parser
ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "experiments.md").read_text()
HEAD = ["#", "experiment", "paper's figure", "command", "status", "our result", "where it differs"]
ROWS = {
    int(cells[0]): dict(zip(HEAD, cells, strict=True))
    for line in PAGE.splitlines()
    if (cells := [cell.strip() for cell in line.strip("|").split(" |")])[0].isdigit()
}
COMMANDS = {command: number for number, row in ROWS.items() for command in re.findall(r"`([^`]+)`", row["command"])}
RECIPES = sorted(command for command in COMMANDS if " bash " in f" {command}")
GRIDS = sorted(command for command in COMMANDS if command.startswith("fairseq-reservoir sweep"))
SIZES = sorted(command for command in COMMANDS if command.startswith("fairseq-reservoir size"))
# Commands that need a trained model: the beginning of the command, and a test file with the text that shows that it runs this command.
WITH_A_MODEL = {
    "fairseq-reservoir report runs/iwslt14 --out report --horizon": (
        "tests/studies/report/test_report.py",
        '"--horizon"',
    ),
    "fairseq-reservoir export checkpoints/checkpoint_best.pt model.safetensors --compact": (
        "tests/checkpoint/test_model_card.py",
        '"--compact"',
    ),
    "fairseq-reservoir export checkpoints/checkpoint_best.pt model.safetensors --regenerate": (
        "tests/checkpoint/test_export.py",
        '"--regenerate"',
    ),
    "fairseq-reservoir probe": ("tests/commands/test_probe.py", '"probe"'),
    "fairseq-reservoir dump-embeddings": ("tests/examples/test_recipes_of_papers.py", '"dump-embeddings"'),
    "VECTORS=": ("tests/examples/test_recipes_of_papers.py", "VECTORS="),
    "fairseq-generate": ("tests/checkpoint/test_fairseq_loader.py", '"--model-overrides"'),
}


def test_all_experiments_are_listed_in_order():
    assert list(ROWS) == list(range(1, 38))
    heads = [[cell.strip() for cell in line.strip("|").split(" |")] for line in PAGE.splitlines() if line[:4] == "| # "]
    assert len(heads) == 5 and all(head == HEAD for head in heads)


@pytest.mark.parametrize("number", ROWS)
def test_figures_of_papers_are_marked_and_gaps_are_named(number):
    row = ROWS[number]
    assert not row["paper's figure"] or row["paper's figure"].startswith(("paper: ", "report: "))
    assert "paper" not in row["our result"]
    assert row["status"] in ("works", "partly") and row["our result"]
    assert row["status"] == "works" or row["where it differs"]


def test_every_command_is_tested():
    others = set(COMMANDS) - {*RECIPES, *GRIDS, *SIZES}
    assert others and all(command.startswith(tuple(WITH_A_MODEL)) for command in others), others
    assert all(text in (ROOT / test).read_text() for test, text in WITH_A_MODEL.values())
    assert {re.search(r"examples/(\S+)", command)[1] for command in RECIPES} <= MINI.keys()


@pytest.mark.parametrize("command", RECIPES)
def test_a_recipe(command, tmp_path):
    """With MINI=1 and DRY_RUN=1, it prints trainings that fairseq parses. Slow tests run MINI=1 of each script to the end."""
    *settings, _, script = shlex.split(command)
    environment = {"SEEDS": "1"} | dict(setting.split("=", 1) for setting in settings)
    ended = bash(ROOT / script, MINI="1", DRY_RUN="1", GPUS="0", RUNS=str(tmp_path / "runs"), **environment)
    assert ended.returncode == 0, ended.stderr
    train = commands_in(ended.stdout)["fairseq-train"]
    assert options.parse_args_and_arch(options.get_training_parser(), train).cpu


@pytest.mark.parametrize("command", GRIDS)
def test_a_run_list(command, tmp_path, monkeypatch, capsys):
    """tests/examples/test_sweeps.py parses all flags of each grid."""
    grid = ROOT / command.split()[-1]
    assert grid.parent == EXAMPLES / "sweeps"
    for name in yaml.safe_load(grid.read_text()).get("defaults", {}):
        monkeypatch.delenv(name, raising=False)
    cli.main(["sweep", str(grid), "--out", str(tmp_path / "runs"), "--dry-run"])
    assert capsys.readouterr().out.count("waiting") > 2


@pytest.mark.parametrize("command", SIZES)
def test_a_size(command, capsys):
    cli.main(command.split()[1:])
    assert "as the paper counts" in capsys.readouterr().out
