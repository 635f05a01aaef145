"""benchmarks/generation_time.py with tiny models: equal work in both arms, and its output."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks import generation_time
from fairseq_reservoir.masks.masked_weight import masked_modules

SIZES = "--encoder-embed-dim 8 --encoder-ffn-embed-dim 12 --encoder-layers 2 --decoder-layers 1"
HEADS = "--encoder-attention-heads 2 --decoder-attention-heads 2"
ARMS = (f"plain: --arch transformer {SIZES} {HEADS}", f"masked: --arch supermask_one_layer_transformer {SIZES} {HEADS}")
SHAPE = "--pairs 2 --warm-up 0 --max-tokens 18 --length 6 --words 30 --beam 3 --threads 1".split()
WORDS = [word for arm in ARMS for word in ("--arm", arm)] + SHAPE


def test_every_hypothesis_has_the_same_length():
    given = generation_time.read_arguments(WORDS)
    arms = [generation_time.Arm(name, flags, given) for name, flags in given.arm]
    assert not masked_modules(arms[1].models[0])
    assert torch.equal(arms[0].batch["net_input"]["src_tokens"], arms[1].batch["net_input"]["src_tokens"])
    for arm in arms:
        sentences = arm.translate()
        # 18 tokens are 3 sentences of 6; hypotheses have 6 tokens and the end of sentence.
        assert [[len(hypothesis["tokens"]) for hypothesis in beam] for beam in sentences] == [[7] * 3] * 3


@pytest.mark.slow
def test_a_run(tmp_path):
    command = [sys.executable, Path(generation_time.__file__), *WORDS, "--promise", "masked", "--at-most", "1000"]
    ended = subprocess.run([*command, "--output", tmp_path / "times"], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    result = json.loads((tmp_path / "times.json").read_text())
    plain, masked = result["arms"]
    assert (plain["arm"], masked["arm"]) == ("plain", "masked") and len(masked["ratios"]) == 2
    assert result["promise"] == {"arm": "masked", "at_most": 1000, "holds": True}
    assert (tmp_path / "times.md").read_text() == ended.stdout
    assert "the lower end of the interval of `masked` is at most 1000.0. It is met." in ended.stdout
