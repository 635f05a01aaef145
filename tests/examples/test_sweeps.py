"""The example grids: fairseq parses the commands of every run."""

import argparse
import re

import pytest
import yaml
from fairseq import options
from fairseq.utils import import_user_module

from fairseq_reservoir.studies.sweep.grid import read_grid
from tests.examples.test_multi30k import EXAMPLES, bash, commands_in

GRIDS = EXAMPLES / "sweeps"
import_user_module(argparse.Namespace(user_dir=str(EXAMPLES / "fpt")))  # before fairseq makes its parser
PARSERS = {"fairseq-generate": options.get_generation_parser, "fairseq-eval-lm": options.get_eval_lm_parser}
README = "\n".join(
    page.read_text() for page in (EXAMPLES.parent / "README.md", EXAMPLES.parent / "docs" / "many-runs.md")
)


# Flags whose values add flags to the parser.
CHOICES = ("--task", "--arch", "--criterion", "--optimizer", "--lr-scheduler")


def with_new_flags(runs):
    """Leave out runs whose words are all in earlier runs of the same task, architecture and so on: the parser reads each flag by itself."""
    seen = set()
    for run in runs:
        found = {tuple(run.environment.items())}
        for _, *words in (step.words for step in run.steps):
            chosen = tuple(value for flag, value in zip(words, words[1:]) if flag in CHOICES)
            found |= {(chosen, word.replace(run.name, "")) for word in words}
        if not found <= seen:
            yield run
        seen |= found


def of_one_seed(runs):
    """Leave out runs that differ in their seed only, except the last one. The first seed is the default of many programs."""
    return {str(run.folder).rpartition("-")[0]: run for run in runs}.values()


@pytest.mark.parametrize("grid", sorted(GRIDS.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_example_grids(grid, data, tmp_path, monkeypatch):
    for name in yaml.safe_load(grid.read_text()).get("defaults", {}):
        monkeypatch.delenv(name, raising=False)
    runs, choices = read_grid(str(grid), str(tmp_path / "runs"))
    runs += [run for choice in choices for others in choice.others.values() for run in others]
    assert len(runs) > 2 and f"examples/sweeps/{grid.name}" in grid.read_text()
    for run in with_new_flags(of_one_seed(runs)):
        words = [step.words for step in run.steps]
        if words[0][0] == "bash":
            ended = bash(EXAMPLES.parent / words[0][1], *words[0][2:], **run.environment, DATA=str(data), DRY_RUN="1")
            assert ended.returncode == 0, ended.stderr
            words = [("fairseq-train", *commands_in(ended.stdout)["fairseq-train"])]
        train = options.parse_args_and_arch(options.get_training_parser(), list(words[0][1:]))
        assert train.save_dir.startswith(str(run.folder)) and run.name.endswith(f"-{train.seed}")
        for command, *flags in words[1:]:
            if command not in PARSERS:
                continue
            read = options.parse_args_and_arch(PARSERS[command](), flags)
            assert read.path == f"{train.save_dir}/checkpoint_best.pt"


def test_the_readme_names_an_example():
    named = re.findall(r"examples/sweeps/(\w+\.yaml)", README)
    assert named and all((GRIDS / name).exists() for name in named)
