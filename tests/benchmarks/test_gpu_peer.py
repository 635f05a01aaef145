"""benchmarks/gpu_peer.py and its plain model, and a run with tiny models on the CPU."""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from benchmarks import gpu_peer, models
from benchmarks.plain_transformer import PlainStep, PlainTransformer, sinusoidal

SCRIPT = Path(gpu_peer.__file__)


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--tokens", "16"], "--tokens 16: at least --length 32"),
        (["--steps", "0"], "--steps 0: at least 1"),
        (["--only", "supermask"], "invalid choice: 'supermask'"),
    ],
)
def test_wrong_arguments_are_named(arguments, message, capsys):
    with pytest.raises(SystemExit, match="2"):
        gpu_peer.read_arguments(arguments)
    assert message in capsys.readouterr().err


def test_the_plain_model_is_as_large_as_fairseqs():
    sizes = "--encoder-embed-dim 8 --encoder-ffn-embed-dim 12 --encoder-layers 3 --decoder-layers 2"
    heads = "--encoder-attention-heads 2 --decoder-attention-heads 2"
    shape = argparse.Namespace(words=20, length=5, max_tokens=10, seed=1, device="cpu")
    _, task, theirs = models.build(f"--arch transformer {sizes} {heads}", shape)
    ours = PlainTransformer(len(task.source_dictionary), 8, 12, 2, 3, 2)
    assert sum(p.numel() for p in ours.parameters()) == sum(p.numel() for p in theirs.parameters())


def test_positions_by_hand():
    # Position 1, width 4: sines and cosines of 1 and of 1 / 10000 ** (2 / 4) = 0.01.
    assert sinusoidal(2, 4)[1].tolist() == pytest.approx([0.841471, 0.0099998, 0.540302, 0.99995], abs=1e-6)


def test_the_decoder_does_not_see_later_tokens():
    torch.manual_seed(1)
    model = PlainTransformer(20, 8, 12, 2, 1, 1).eval()
    source, previous, target = torch.randint(4, 20, (3, 1, 5))
    other = previous.clone()
    other[0, -1] += 1

    def loss_of_first_four(tokens):
        ignored = target.clone()
        ignored[0, -1] = -100
        return model(source, tokens, ignored).item()

    assert loss_of_first_four(previous) == loss_of_first_four(other)
    assert model(source, previous, target).item() != model(source, other, target).item()


def test_steps_reduce_the_loss():
    torch.manual_seed(1)
    source, target = torch.randint(4, 20, (2, 4, 5))
    plain = PlainStep(PlainTransformer(20, 16, 24, 2, 1, 1, dropout=0.0), source, target)
    first = plain.step().item()
    for _ in range(60):
        last = plain.step().item()
    assert last < first - 1


def test_the_plain_model_is_one_graph_for_the_compiler():
    torch.manual_seed(1)
    model = PlainTransformer(20, 8, 12, 2, 1, 1).eval()
    batch = torch.randint(4, 20, (3, 2, 5))
    compiled = torch.compile(model, backend="eager", fullgraph=True, dynamic=False)
    assert compiled(*batch).item() == model(*batch).item()


@pytest.mark.slow
def test_a_run_with_tiny_models(tmp_path):
    command = [sys.executable, SCRIPT, "--tiny", "--threads", "1", "--output", tmp_path / "out"]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    peer, fast, stock = json.loads((tmp_path / "out.json").read_text())["arms"]
    assert (peer["arm"], fast["arm"], stock["arm"]) == ("plain PyTorch, eager", "fast", "stock")
    assert fast["failed"] is None and fast["shape"] == stock["shape"] == [8, 5]
    for arm in (fast, stock):
        assert arm["ms"] > 0 and arm["tokens_per_second"] == pytest.approx(40_000 / arm["ms"])
    assert ended.stdout.endswith((tmp_path / "out.md").read_text())
