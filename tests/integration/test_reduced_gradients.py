"""Gradients of frozen tensors are not communicated between ranks, counted in elements per update."""

from unittest.mock import patch

import pytest
import torch
from fairseq.distributed import LegacyDistributedDataParallel, utils as distributed_utils
from fairseq.models import distributed_fairseq_model
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

from tests.support.building import build
from tests.support.several_processes import in_processes, train_as


def counting(sizes, all_reduce):
    """An all-reduce that records the number of elements."""

    def counted(tensor, *args, **kwargs):
        sizes.append(tensor.numel())
        return all_reduce(tensor, *args, **kwargs)

    return counted


def summed(ddp):
    """Elements of each all-reduce of an update, with a gradient of 1/3 everywhere in trained tensors."""
    sizes = []
    for parameter in ddp.module.parameters():
        parameter.grad = torch.full_like(parameter, 1 / 3) if parameter.requires_grad else None
    with patch.object(distributed_utils, "all_reduce", counting(sizes, lambda *args: None)):
        ddp.all_reduce_grads()
    return sizes


def test_legacy_ddp_sums_currently_trained_tensors():
    model = build("LT", "L")
    total = sum(p.numel() for p in model.parameters())
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    ddp = LegacyDistributedDataParallel(model, None)
    assert summed(ddp) == [trained] and 0 < trained < total
    weight = model.decoder.layers[0].fc1.weight.requires_grad_(False)
    assert summed(ddp) == [trained - weight.numel()] and weight.grad is None
    weight.requires_grad_(True)
    assert summed(ddp) == [trained] and weight.grad.eq(torch.tensor(1 / 3)).all()


def test_plain_legacy_ddp_sums_room_for_everything():
    model = build("LT", "L")
    with patch.object(
        LegacyDistributedDataParallel, "all_reduce_grads", LegacyDistributedDataParallel.all_reduce_grads.__wrapped__
    ):
        assert summed(LegacyDistributedDataParallel(model, None)) == [sum(p.numel() for p in model.parameters())]


def test_legacy_ddp_sums_in_the_dtype_of_trained_tensors():
    model = torch.nn.Sequential(
        torch.nn.Linear(2, 3, dtype=torch.bfloat16).requires_grad_(False), torch.nn.Linear(3, 2)
    )
    assert summed(LegacyDistributedDataParallel(model, None)) == [3 * 2 + 2]
    assert model[1].weight.grad.eq(torch.tensor(1 / 3)).all()


@pytest.mark.parametrize("half", [torch.float16, torch.bfloat16])
def test_legacy_ddp_sums_float32_tensors_in_float32(half):
    """For example scores of masks together with trained token vectors in half precision."""
    model = torch.nn.Sequential(torch.nn.Linear(2, 3, dtype=half), torch.nn.Linear(3, 2))
    ddp = LegacyDistributedDataParallel(model, None)
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 1 / 3 if parameter.dtype == half else 1e5 + 1 / 3)
    with patch.object(distributed_utils, "all_reduce", lambda *args: None):
        ddp.all_reduce_grads()
    assert model[1].weight.grad.eq(torch.tensor(1e5 + 1 / 3)).all()
    assert model[0].weight.grad.eq(torch.tensor(1 / 3, dtype=half)).all()


PLAN = "--reservoir-encoder LTF --reservoir-decoder LT --freeze emb".split()
SCHEDULED = ["--optimizer", "freeze_skip", "--freeze-schedule", "0:emb;2:encoder.layers.0,ffn;3:-emb"]
RUNS = {
    "pytorch_ddp": PLAN,
    "legacy_ddp": [*PLAN, *SCHEDULED[:2], "--freeze-schedule", "1:decoder.ffn;3:-decoder.ffn"],
    "no_c10d": SCHEDULED,
}


def sent_and_trained(rank, folder, data):
    """Backend -> (elements communicated in each of 4 updates, elements trained in each)."""
    return {backend: _sent_and_trained(rank, folder / backend, data, backend, flags) for backend, flags in RUNS.items()}


def _sent_and_trained(rank, meeting, data, backend, flags):
    sent, sizes = [], []
    reduce_grads = LegacyDistributedDataParallel.all_reduce_grads

    def all_reduce_grads(ddp):
        with patch.object(distributed_utils, "all_reduce", counting(sizes, distributed_utils.all_reduce)):
            reduce_grads(ddp)
        end_update()

    def end_update():
        sent.append(sum(sizes))
        sizes.clear()

    def hook(group, bucket):
        sizes.append(bucket.buffer().numel())
        if bucket.is_last():
            end_update()
        return allreduce_hook(group, bucket)

    class Counted(distributed_fairseq_model.DistributedDataParallel):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.register_comm_hook(None, hook)

    with (
        patch.object(LegacyDistributedDataParallel, "all_reduce_grads", all_reduce_grads),
        patch.object(distributed_fairseq_model, "DistributedDataParallel", Counted),
    ):
        run = train_as(
            rank,
            2,
            meeting,
            data,
            *flags,
            "--ddp-backend",
            backend,
            "--max-update",
            4,
            "--no-save",
            "--disable-validation",
        )
    schedule, frozen = (
        run.trainer.freeze_schedule,
        {entry.name for entry in run.model.slot_table.entries if not entry.trained},
    )
    idle = [frozen | (schedule.frozen(update) if schedule else set()) for update in range(4)]
    return sent, [sum(p.numel() for name, p in run.model.named_parameters() if name not in names) for names in idle]


@pytest.mark.slow
def test_two_ranks_send_only_trained_tensors(toy_data, tmp_path):
    one, other = in_processes(2, sent_and_trained, tmp_path, toy_data)
    assert one == other
    for backend, (sent, trained) in one.items():
        assert sent == trained, backend
    assert len(set(one["pytorch_ddp"][0])) == 1 and len(set(one["no_c10d"][0])) == 3
