"""Each kind of layer on a device in float32 equals the CPU in float64.

The loss differs by at most 1e-4 of its size, gradients by at most 1e-4 of the largest.
"""

import copy

import pytest
import torch

from tests.support.building import build, loss, pad, sentences
from tests.support.letters import LETTERS, everywhere


@pytest.fixture(autouse=True)
def no_tf32(monkeypatch):
    """Disable TF32. cuDNN would round the products of a GRU and a convolution to ten bits."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


@pytest.mark.parametrize("stack, letter", everywhere(LETTERS))
def test_loss_and_gradients(device, stack, letter):
    model = build(**{stack: f"L{letter}"})
    source, target = pad(sentences(7, 4, 2), "left"), pad(sentences(6, 5, 3, seed=2))
    exact = copy.deepcopy(model).double()
    model.to(device)
    losses = loss(model, source.to(device), target.to(device)), loss(exact, source, target)
    for one in losses:
        one.backward()
    torch.testing.assert_close(losses[0].detach().cpu().double(), losses[1].detach(), rtol=1e-4, atol=0)
    expected = {name: p.grad for name, p in exact.named_parameters() if p.requires_grad}
    largest = max(float(gradient.abs().max()) for gradient in expected.values())
    for name, p in model.named_parameters():
        if p.requires_grad:
            torch.testing.assert_close(p.grad.cpu().double(), expected[name], rtol=0, atol=1e-4 * largest)
