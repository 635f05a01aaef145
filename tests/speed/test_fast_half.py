"""The optimizer over lists for --bf16 and --fp16 against fairseq's own, bit for bit on the CPU, over 20 updates."""

from types import SimpleNamespace
from unittest.mock import patch

import pytest
import torch
from fairseq import optim
from omegaconf import OmegaConf

from fairseq_reservoir.speed.fast_adam import FastAdam, use_fast_adam
from fairseq_reservoir.speed.fast_half import FastHalf, use_lists

SHAPES = (4, 3), (5,), (2, 3, 2), (1,)
WAYS = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp16, not flat": torch.float16}


def build(way, frozen=()):
    """A half-precision optimizer of fairseq and its parameters. fairseq's flat tensors have a key for each GPU; here the key is None."""
    torch.manual_seed(1)
    parameters = [torch.nn.Parameter(torch.randn(shape).to(WAYS[way])) for shape in SHAPES]
    for number in frozen:
        parameters[number].requires_grad_(False)
    adam = {"_name": "adam", "lr": [0.01], "adam_betas": "(0.9, 0.98)", "adam_eps": 1e-8, "weight_decay": 0.01}
    common = SimpleNamespace(
        bf16=way == "bf16",
        fp16_no_flatten_grads="not flat" in way,
        fp16_scale_window=4,
        fp16_init_scale=2.0**10,
        fp16_scale_tolerance=0.0,
        threshold_loss_scale=None,
        min_loss_scale=1e-4,
        tpu=False,
    )
    more = {"use_old_adam": True, "fp16_adam_stats": False, "tpu": False}
    cfg = SimpleNamespace(optimizer=OmegaConf.create({**adam, **more}), common=common)
    with patch.object(torch.cuda, "current_device", lambda: None):
        return optim.FP16Optimizer.build_optimizer(cfg, parameters), parameters


def update(optimizer, parameters, number, limit):
    """One update with scaled gradients; the third parameter has none in update 3, and update 7 overflows in fp16."""
    optimizer.zero_grad()
    generator = torch.Generator().manual_seed(number)
    scale = optimizer.scaler.loss_scale if optimizer.scaler else 1.0
    for place, p in enumerate(parameters):
        gradient = torch.randn(p.shape, generator=generator) * scale
        if p.requires_grad and not (place == 2 and number == 3):
            p.grad = gradient.to(p.dtype)
    if number == 7 and optimizer.scaler:
        parameters[0].grad[0, 0] = torch.inf
    optimizer._needs_sync = True
    optimizer.multiply_grads(1 / 3)
    try:
        norm = optimizer.clip_grad_norm(limit)
        optimizer.step()
    except OverflowError:
        return "overflow"
    return norm.item()


def all_fp32(optimizer):
    weights = optimizer.fp32_params
    weights = list(weights.values()) if isinstance(weights, dict) else weights
    return [w.detach() for w in weights], [w.grad for w in weights]


@pytest.mark.parametrize("limit", [0.0, 0.5])
@pytest.mark.parametrize("frozen", [(), (1,)])
@pytest.mark.parametrize("way", WAYS)
def test_twenty_updates_have_the_same_bits(way, frozen, limit):
    (fairseqs, theirs), (changed, ours) = build(way, frozen), build(way, frozen)
    fetched = []
    changed = use_lists(changed, lambda norm: fetched.append(norm) or norm.cpu())
    assert isinstance(changed, FastHalf) and type(changed).__name__ == type(fairseqs).__name__
    scales = []
    for number in range(20):
        assert update(changed, ours, number, limit) == update(fairseqs, theirs, number, limit), number
        assert all(p.equal(q) for p, q in zip(ours, theirs)), number
        for mine, fairseq_s in zip(all_fp32(changed), all_fp32(fairseqs)):
            assert all(p.equal(q) for p, q in zip(mine, fairseq_s)), number
        scales.append(changed.scaler.loss_scale if changed.scaler else None)
        assert scales[-1] == (fairseqs.scaler.loss_scale if fairseqs.scaler else None)
    assert len(fetched) == 20
    assert way == "bf16" or scales[7] < scales[6] < scales[-1]


@pytest.mark.parametrize("way", WAYS)
def test_adam_in_one_pass_and_no_new_tensors(way):
    optimizer, parameters = build(way)
    optimizer = use_lists(optimizer, torch.Tensor.cpu)
    use_fast_adam(optimizer)
    assert type(optimizer.optimizer) is FastAdam and isinstance(optimizer, FastHalf)
    update(optimizer, parameters, 0, 1.0)
    places = [x.data_ptr() for group in all_fp32(optimizer) for x in group]
    with patch.object(torch, "_fused_adamw_", wraps=torch._fused_adamw_) as fused:
        for number in range(1, 4):
            update(optimizer, parameters, number, 1.0)
    assert fused.call_count == 3
    assert [x.data_ptr() for group in all_fp32(optimizer) for x in group] == places


@pytest.mark.parametrize("way", WAYS)
def test_persistent_gradients_have_the_same_bits(way):
    """``--cuda-graphs`` attaches the same gradient tensors again in each update. Parameters are frozen from update 5 to 8."""
    (fairseqs, theirs), (changed, ours) = build(way), build(way)
    changed = use_lists(changed, torch.Tensor.cpu)
    kept = [torch.zeros_like(p) for p in ours]
    for number in range(20):
        for optimizer, parameters in ((fairseqs, theirs), (changed, ours)):
            optimizer.zero_grad()
            assert all(p.grad is None for p in parameters)
            generator = torch.Generator().manual_seed(number)
            for place, p in enumerate(parameters):
                p.requires_grad_(way == "fp16" or not (5 <= number < 8 and place == 1))
                gradient = torch.randn(p.shape, generator=generator).to(p.dtype)
                if p.requires_grad:
                    p.grad = kept[place].copy_(gradient) if optimizer is changed else gradient
            optimizer._needs_sync = True
        norms = [optimizer.clip_grad_norm(0.5).item() for optimizer in (fairseqs, changed)]
        assert norms[0] == norms[1]
        for optimizer in (fairseqs, changed):
            optimizer.step()
        assert all(p.equal(q) for p, q in zip(ours, theirs)), number
        for mine, fairseq_s in zip(all_fp32(changed), all_fp32(fairseqs)):
            assert all(p.equal(q) for p, q in zip(mine, fairseq_s)), number


def test_gradients_that_a_schedule_has_removed():
    """``freeze_skip`` sets gradients of float32 copies to None. The next update with a gradient creates them again."""
    (fairseqs, theirs), (changed, ours) = build("bf16"), build("bf16")
    changed = use_lists(changed, torch.Tensor.cpu)
    for optimizer, parameters in ((fairseqs, theirs), (changed, ours)):
        for number in range(6):
            if number in (1, 2):
                optimizer.fp32_params[0].grad = None
            parameters[0].requires_grad_(number not in (1, 2))
            update(optimizer, parameters, number, 1.0)
    assert all(p.equal(q) for p, q in zip(ours, theirs))


def test_memory_efficient_optimizer_is_kept():
    class Other(optim.FairseqOptimizer):
        fp32_optimizer = "not an optimizer"

    other = Other(None)
    assert use_lists(other, torch.Tensor.cpu) is other
