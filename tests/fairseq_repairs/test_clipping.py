"""Gradients on the CPU are clipped there, whether there is a GPU or not."""

import pytest
import torch
from fairseq import utils


def parameters():
    """Two of one number each, whose gradients have the norm 5."""
    first, second = torch.zeros(1), torch.zeros(1)
    first.grad, second.grad = torch.tensor([3.0]), torch.tensor([-4.0])
    return [first, second]


@pytest.mark.parametrize("gpu", [True, False])
def test_by_hand(monkeypatch, gpu):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpu)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: "meta")  # where a number cannot be read from
    found = parameters()
    norm = utils.clip_grad_norm_(iter(found), 2.5)
    assert norm.device.type == "cpu" and norm.item() == 5
    assert [p.grad.item() for p in found] == pytest.approx([1.5, -2], abs=1e-5)
    assert torch.cuda.is_available() == gpu


def test_fairseq_alone_asks_the_gpu(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: "meta")
    assert utils.clip_grad_norm_.__wrapped__(parameters(), 0).device.type == "meta"


def test_a_norm_that_processes_share_is_the_one_that_counts():
    found = parameters()
    assert utils.clip_grad_norm_(found, 2, lambda norm: 2 * norm).item() == 10
    assert [p.grad.item() for p in found] == pytest.approx([0.6, -0.8], abs=1e-5)


def test_elsewhere_it_is_fairseqs(monkeypatch):
    """Gradients that are not on the CPU: their norm is where torch says that the GPU is."""
    tensor = torch.zeros(1, device="meta")
    tensor.grad = torch.zeros(1, device="meta")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: "meta")
    assert utils.clip_grad_norm_([tensor, tensor], 0).device.type == "meta"
