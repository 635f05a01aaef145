"""Gradients on the CPU are clipped on the CPU, with and without a GPU."""

import pytest
import torch
from fairseq import utils


def parameters():
    """Return two parameters of one number each. The norm of their gradients is 5."""
    first, second = torch.zeros(1), torch.zeros(1)
    first.grad, second.grad = torch.tensor([3.0]), torch.tensor([-4.0])
    return [first, second]


@pytest.mark.parametrize("gpu", [True, False])
def test_by_hand(monkeypatch, gpu):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: "meta")  # values on the meta device cannot be read
    found = parameters()
    norm = utils.clip_grad_norm_(iter(found), 2.5)
    assert norm.device.type == "cpu" and norm.item() == 5
    assert [p.grad.item() for p in found] == pytest.approx([1.5, -2], abs=1e-5)
    assert torch.cuda.is_available() == gpu


def test_plain_fairseq_computes_the_norm_on_the_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: "meta")
    assert utils.clip_grad_norm_.__wrapped__(parameters(), 0).device.type == "meta"


def test_gradients_are_clipped_by_the_norm_over_all_ranks():
    found = parameters()
    assert utils.clip_grad_norm_(found, 2, lambda norm: 2 * norm).item() == 10
    assert [p.grad.item() for p in found] == pytest.approx([0.6, -0.8], abs=1e-5)


def test_gradients_on_another_device_use_fairseqs_code(monkeypatch):
    """The norm of gradients on another device is computed on the current GPU, here the meta device."""
    tensor = torch.zeros(1, device="meta")
    tensor.grad = torch.zeros(1, device="meta")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: "meta")
    assert utils.clip_grad_norm_([tensor, tensor], 0).device.type == "meta"
