"""benchmarks/step_time.py: its arguments, and one run with tiny models."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from fairseq.models.transformer_lm import TransformerLanguageModel

from benchmarks import models, step_time

SCRIPT = Path(step_time.__file__)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--arm", "no flags"], "--arm"),
        (["--arm", "A: --arch transformer"], "two or more"),
        (["--pairs", "0"], "--pairs 0: at least 1"),
        (["--promise", "X"], "--promise X: choose from only L"),
        (["--figure", "times.txt"], "'times.txt': the name must end in .png, .pdf, .svg"),
        (["--sorted", "T"], "--sorted T: not the name of an arm with a supermask model"),
    ],
)
def test_wrong_arguments_are_named(arguments, message, capsys):
    with pytest.raises(SystemExit, match="2"):
        step_time.read_arguments(arguments)
    assert message in capsys.readouterr().err


LM_SIZES = "--decoder-embed-dim 8 --decoder-ffn-embed-dim 12 --decoder-attention-heads 2"
WIDTHS = "--decoder-input-dim 8 --decoder-output-dim 8 --decoder-normalize-before"
LM_ARMS = (
    ("plain", f"--arch transformer_lm {LM_SIZES} {WIDTHS} --decoder-layers 2"),
    ("T", f"--arch reservoir_transformer_lm {LM_SIZES} --reservoir-decoder LT"),
)


def test_a_language_model_predicts_the_next_token():
    given = step_time.read_arguments("--max-tokens 20 --length 5 --words 20".split())
    plain, reservoir = (step_time.Arm(*arm, given) for arm in LM_ARMS)
    assert type(plain.trainer.model) is TransformerLanguageModel
    assert plain.facts["parameters"] == reservoir.facts["parameters"]
    for arm in (plain, reservoir):
        assert set(arm.batch["net_input"]) == {"src_tokens", "src_lengths"}
        assert arm.batch["net_input"]["src_tokens"][:, 1:].equal(arm.batch["target"][:, :-1])
        assert 0 < arm.trainer.train_step([arm.batch])["loss"] < 20
    flags = [flags for _, flags in LM_ARMS]
    facts, _ = step_time.facts_of(given, flags)
    assert facts["batch"] == "4 sentences of 5 tokens" and facts["common_flags"] == models.LANGUAGE_MODEL


@pytest.mark.slow
def test_a_run_on_a_tiny_shape(tmp_path):
    sizes = "--encoder-embed-dim 8 --encoder-ffn-embed-dim 12 --encoder-attention-heads 2 --decoder-attention-heads 2"
    plan = f"--arch reservoir_transformer {sizes} --reservoir-decoder L --reservoir-encoder"
    arms = [
        f"plain: --arch transformer {sizes} --encoder-layers 2 --decoder-layers 1",
        f"only L: {plan} LL",
        f"T: {plan} LT",
        f"masked: --arch supermask_one_layer_transformer {sizes} --encoder-layers 2 --decoder-layers 1",
    ]
    shape = "--pairs 2 --warm-up 0 --max-tokens 20 --length 5 --words 20 --threads 1 --sorted masked".split()
    words = [word for arm in arms for word in ("--arm", arm)]
    command = [
        sys.executable,
        SCRIPT,
        *words,
        *shape,
        "--output",
        tmp_path / "times",
        "--figure",
        tmp_path / "times.png",
    ]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr

    result = json.loads((tmp_path / "times.json").read_text())
    plain, only_l, reservoir, masked, sorting = result["arms"]
    assert [arm["arm"] for arm in result["arms"]] == [
        "plain",
        "only L",
        "T",
        "masked",
        "masked, a sort in every forward",
    ]
    assert only_l["flops"] == plain["flops"] and only_l["parameters"] == plain["parameters"]
    # The frozen layer saves its weight gradients: 2 FLOPs x 20 tokens x (4 attention matrices of 8 x 8, two of 8 x 12).
    assert plain["flops"] - reservoir["flops"] == 2 * 20 * (4 * 8 * 8 + 2 * 8 * 12)
    # These matrices, their biases and two LayerNorms are not trained.
    assert reservoir["parameters"] - reservoir["trained"] == 4 * (64 + 8) + 2 * 96 + 12 + 8 + 2 * 16
    assert all(len(arm["ratios"]) == 2 and arm["low"] <= arm["ratio"] <= arm["high"] for arm in result["arms"][1:])
    assert masked["flops"] == sorting["flops"] == plain["flops"] and masked["trained"] == sorting["trained"]
    assert all(arm["seconds"] > 0 for arm in result["arms"])
    # At least parameters, gradients and two moments of 4 bytes each.
    assert all(4 * (a["parameters"] + 3 * a["trained"]) <= a["peak_mib"] * 2**20 < 10**6 for a in result["arms"])
    assert (tmp_path / "times.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "times.md").read_text() == ended.stdout
    assert ended.stdout.count("\n| ") == 5
