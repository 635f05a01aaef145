"""``--fast`` on a device uses attention without a plan for each batch shape, in each precision, and equals the CPU."""

import pytest
import torch

from fairseq_reservoir.speed.fast_attention import attend


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_no_plan_is_made(device, dtype, padded):
    torch.manual_seed(1)
    q, k, v = (torch.randn(3, 4, 9, 32, dtype=torch.float64, requires_grad=True) for _ in range(3))
    mask = torch.zeros(3, 1, 1, 9, dtype=torch.float64)
    if padded:
        mask[1, ..., 6:] = -torch.inf
    expected = attend(q, k, v, mask if padded else None, 0.0)
    there = [x.detach().to(device, dtype).requires_grad_() for x in (q, k, v)]
    found = attend(*there, mask.to(device, dtype) if padded else None, 0.0)
    assert "cudnn" not in found.grad_fn.name().lower()
    tolerance = 1e-5 if dtype == torch.float32 else 0.02
    torch.testing.assert_close(found.detach().cpu().double(), expected.detach(), rtol=0, atol=tolerance)
    found.float().sum().backward()
    expected.sum().backward()
    torch.testing.assert_close(there[2].grad.cpu().double(), v.grad, rtol=0, atol=2 * tolerance)


@pytest.mark.parametrize("time, is_disabled", [(4, True), (4096, False)])
def test_only_small_batches_go_without_plans(device, monkeypatch, time, is_disabled):
    if device == "cpu":
        pytest.skip("a CPU has no cuDNN")
    seen = []
    usual = torch.nn.functional.scaled_dot_product_attention

    def looking(*args):
        seen.append(torch.backends.cuda.cudnn_sdp_enabled())
        return usual(*args)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", looking)
    q = torch.randn(4, 1, time, 8, device=device, dtype=torch.float16)
    attend(q, q, q, None, 0.0)
    assert seen == [not is_disabled] and torch.backends.cuda.cudnn_sdp_enabled()
