"""The README's commands do what it says."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from fairseq import options

from fairseq_reservoir import cli
from fairseq_reservoir.models.reservoir.language_model import PRESETS as LM_PRESETS
from fairseq_reservoir.models.reservoir.transformer import PRESETS
from fairseq_reservoir.models.supermask.language_model import PRESETS as MASKED_LM_PRESETS
from fairseq_reservoir.models.supermask.transformer import PRESETS as MASKED_PRESETS
from fairseq_reservoir.options.roberta_options import RobertaVectorOptions
from fairseq_reservoir.options.supermask_options import MaskOptions
from fairseq_reservoir.plan.kinds import letters
from fairseq_reservoir.training.freeze_schedule import FreezeSchedule
from fairseq_reservoir.training.freeze_skip import FreezeSkipOptions
from tests.support.commands import train

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "README.md").read_text()
TRAIN_AND_TRANSLATE, PLAN, SUPERMASK_PLAN = re.findall(r"^```sh\n(.*?)^```", TEXT, flags=re.DOTALL | re.MULTILINE)
PLAN_OUTPUT = re.search(r"^```\n(slot .*?)^```", TEXT, flags=re.DOTALL | re.MULTILINE)[1]


def test_training_and_translating(tmp_path, toy_data):
    (tmp_path / "data-bin").symlink_to(toy_data)
    (tmp_path / "fairseq_reservoir").symlink_to(ROOT / "fairseq_reservoir")
    assert "--max-update 1500" in TRAIN_AND_TRANSLATE
    script = TRAIN_AND_TRANSLATE.replace("--max-update 1500", "--max-update 3 --no-epoch-checkpoints")
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euc", script], cwd=tmp_path, env=os.environ | {"PATH": programs}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "encoder.layers.1           F feed-forward" in done.stdout + done.stderr
    assert re.search(r"Generate test with beam=5: BLEU4 = [\d.]+", done.stdout)
    assert len(re.findall(r"^H-\d+", done.stdout, flags=re.MULTILINE)) == 8, "every sentence of the test set is translated"


def test_the_printed_plan(capsys):
    cli.main(PLAN.split()[1:])
    assert capsys.readouterr().out == PLAN_OUTPUT


def test_the_supermask_plan(capsys):
    cli.main(SUPERMASK_PLAN.split()[1:])
    assert "seen through 3 masks" in capsys.readouterr().out


@pytest.mark.parametrize("command", re.findall(r"`(--(?:reservoir|freeze|encoder-layers)[^` ]* [^`]+)`", TEXT))
def test_flags_of_the_tables_are_accepted(command, capsys):
    if command.startswith("--reservoir-type"):
        command += " --encoder-layers 7 --reservoir-count 2"
    cli.main(["plan", "--arch", "reservoir_transformer_tiny", *command.split()])
    assert "trained" in capsys.readouterr().out


@pytest.mark.parametrize("flags", re.findall(r"`(--optimizer freeze_skip [^`]+)`", TEXT))
def test_flags_of_freeze_skip_are_accepted(flags):
    parser = options.get_training_parser()
    args = options.parse_args_and_arch(parser, ["data", "--arch", "reservoir_transformer_tiny", *shlex.split(flags)])
    names = [f"{stack}.layers.{i}.fc1.weight" for stack in ("encoder", "decoder") for i in range(3)]
    given = {name.removeprefix("freeze_"): getattr(args, name) for name in vars(FreezeSkipOptions()) if name.startswith("freeze_")}
    assert str(FreezeSchedule([*names, "encoder.embed_tokens.weight"], **given))


def test_all_letters_and_presets_are_named():
    for letter in letters():
        assert f"`{letter}`" in TEXT
    for preset in {**PRESETS, **MASKED_PRESETS, **LM_PRESETS, **MASKED_LM_PRESETS}:
        assert f"`{preset}`" in TEXT


def test_the_supermask_flags_of_the_table_exist():
    named = set(re.findall(r"--(mask-[a-z-]+[a-z])", TEXT))
    theirs = {"mask-init", "mask-constant", "mask-layernorm-type"}
    ours = {*MaskOptions.__dataclass_fields__, *RobertaVectorOptions.__dataclass_fields__}
    assert named - theirs <= {name.replace("_", "-") for name in ours}


def test_the_ten_per_cent_of_training_flops(capsys):
    """2 T of 6 in both stacks: a third of their FLOPs, against the whole model's (IWSLT dictionaries)."""
    table = cli.plan(
        "reservoir_transformer_iwslt_de_en",
        ["--reservoir-encoder", "LTLTLL", "--reservoir-decoder", "LTLTLL", "--share-decoder-input-output-embed"],
        8848,
        6632,
    )
    frozen = sum(row.flops for row in table.rows if row.state == "frozen")
    assert 0.095 < frozen / 3 / sum(row.flops for row in table.rows) < 0.105


def test_giving_a_model_away(tmp_path, toy_data):
    commands = re.search(r"^## Give a model away\n\n((?:    .*\n)+)", TEXT, flags=re.MULTILINE)[1]
    train(toy_data, "--reservoir-encoder", "LT", "--max-update", 2, "--save-dir", tmp_path / "checkpoints")
    (tmp_path / "data-bin").symlink_to(toy_data)
    (tmp_path / "fairseq_reservoir").symlink_to(ROOT / "fairseq_reservoir")
    program = f"{sys.executable} -W ignore -m fairseq_reservoir.cli"
    script = commands.replace("fairseq-reservoir ", f"{program} ").replace("fairseq-generate", "fairseq-generate --cpu")
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euc", script], cwd=tmp_path, env=os.environ | {"PATH": programs}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "random tensors" in done.stdout and "Generate test with beam=5" in done.stdout
    assert "plain.pt: " in done.stdout and "inference: weights in memory" in done.stdout
