"""A reservoir contributes: without it the logits differ, and its function depends on its input."""

import pytest
import torch

from tests.support.building import build, logits, loss, pad, sentences, shift
from tests.support.letters import FROZEN, everywhere

CASES = everywhere(FROZEN)


def build_with(stack, letter, **options):
    model = build(**{stack: f"L{letter}L"}, **options)
    return model, getattr(model, stack).layers[1]


@pytest.mark.parametrize("stack, letter", CASES)
@pytest.mark.parametrize("norm", ["paper", "model"])
def test_zeroing_one_changes_the_logits(stack, letter, norm):
    model, reservoir = build_with(stack, letter, reservoir_norm=norm)
    batch = pad(sentences(5, 3)), shift(pad(sentences(4, 4, seed=2)))
    before = logits(model, *batch)
    with torch.no_grad():
        for name, p in reservoir.named_parameters():
            if "layer_norm" not in name:
                p.zero_()
    assert (logits(model, *batch) - before).abs().amax(dim=-1).min() > 1e-3


@pytest.mark.parametrize("stack, letter", CASES)
@pytest.mark.parametrize("norm", ["paper", "model"])
def test_gradient_of_its_input_is_not_zero_and_not_only_the_residual(stack, letter, norm):
    model, reservoir = build_with(stack, letter, reservoir_norm=norm)
    seen = {}

    def keep(module, inputs, output):
        seen["x"], seen["y"] = inputs[0], output[0] if isinstance(output, tuple) else output
        seen["x"].retain_grad(), seen["y"].retain_grad()

    reservoir.register_forward_hook(keep)
    loss(model, pad(sentences(5, 3)), pad(sentences(4, 4, seed=2))).backward()
    assert seen["x"].grad.abs().max() > 1e-3
    assert (seen["x"].grad - seen["y"].grad).abs().max() > 1e-3
