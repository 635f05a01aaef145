"""Known padding: results come from the host. Tensors on the meta device have no values, so a read would fail."""

import gc
import weakref

import pytest
import torch

from fairseq_reservoir.speed.known_padding import mark

PAD = 1
PADDED, FULL = torch.tensor([[4, 5, 2], [PAD, 6, 2]]), torch.tensor([[4, 5, 2], [7, 6, 2]])


def batch(**tokens):
    """A batch on the CPU, and the same batch on the meta device."""
    lengths = torch.tensor([3, 2])
    host = {"id": torch.arange(2), "net_input": {**tokens, "src_lengths": lengths}, "target": FULL}
    moved = {name: x.to("meta") for name, x in host["net_input"].items()}
    return host, {"id": host["id"].to("meta"), "net_input": moved, "target": FULL.to("meta")}


def test_answers_come_from_the_cpu():
    host, sample = batch(src_tokens=PADDED, prev_output_tokens=FULL)
    mark(sample, host)
    source, previous = sample["net_input"]["src_tokens"], sample["net_input"]["prev_output_tokens"]
    assert source.eq(PAD).any() and not previous.eq(PAD).any()
    assert not source.eq(9).any() and previous.eq(7).any()
    answer = source.eq(PAD).any().type_as(torch.zeros(2, dtype=torch.float16, device="meta"))
    assert answer.device.type == "meta" and answer.dtype == torch.float16 and answer.shape == ()


@pytest.mark.parametrize("found, number", [(PADDED, 1), (FULL, 0)])
def test_answer_as_a_number(found, number):
    host, sample = batch(src_tokens=found)
    mark(sample, host)
    assert sample["net_input"]["src_tokens"].eq(PAD).any().type_as(torch.zeros(1)).equal(torch.tensor(float(number)))


def test_other_uses_run_on_the_device():
    host, sample = batch(src_tokens=PADDED)
    mark(sample, host)
    tokens = sample["net_input"]["src_tokens"]
    mask = tokens.eq(PAD)
    assert mask.device.type == "meta" and mask.shape == (2, 3) and mask.dtype == torch.bool
    assert mask.any(1).shape == (2,) and mask.any(dim=0).device.type == "meta"
    for other in (tokens[:, 1:].eq(PAD).any(), mask[:, 0].any(), tokens.ne(PAD).any()):
        with pytest.raises((RuntimeError, NotImplementedError)):
            bool(other)
    assert type(mask) is torch.Tensor and tokens.contiguous().eq(PAD).any()


def test_always():
    _, sample = batch(src_tokens=FULL)
    mark(sample, always=True)
    assert sample["net_input"]["src_tokens"].eq(PAD).any()


def test_batches_that_are_not_marked():
    """A batch on the CPU, a batch that was on the device already, and other tensors."""
    host, sample = batch(src_tokens=PADDED)
    mark(host, host)
    mark(sample, sample)
    mark(sample, None)
    mark({"net_input": None}, {})
    mark(sample, host)
    assert not any("eq" in vars(x) for x in (host["net_input"]["src_tokens"], sample["net_input"]["src_lengths"]))
    assert "eq" in vars(sample["target"]) and "eq" in vars(sample["net_input"]["src_tokens"])


def test_tensors_are_freed_at_once():
    host, sample = batch(src_tokens=PADDED)
    mark(sample, host)
    mask = sample["net_input"]["src_tokens"].eq(PAD)
    alive = [weakref.ref(x) for x in (sample["net_input"]["src_tokens"], mask)]
    gc.disable()
    try:
        del mask, sample
        assert [reference() for reference in alive] == [None, None]
    finally:
        gc.enable()
