"""The cache selects masks once per update, and never uses masks of old scores."""

import copy
import io

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from fairseq_reservoir.masks import selection
from fairseq_reservoir.masks.masked_linear import MaskedLinear
from fairseq_reservoir.masks.masked_weight import MaskedWeight, masked_modules, nan_scores, share_mask_cache
from tests.support.masks_by_sorting import expected_mask, expected_masks_together


class Model(nn.Module):
    """Four masked layers of two shapes, with ``set_num_updates`` as in fairseq's models."""

    def __init__(self, shared=True, **options):
        super().__init__()
        sizes = [(6, 4), (4, 6), (6, 4), (4, 6)]
        self.layers = nn.ModuleList(MaskedLinear(*s, seed=1, name=f"{i}", **options) for i, s in enumerate(sizes))
        if shared:
            share_mask_cache(self)

    def forward(self, x, skip=()):
        for i in range(0, 4, 2):
            if i not in skip:
                x = x + self.layers[i + 1](self.layers[i](x))
        return x

    def set_num_updates(self, n):
        for m in self.modules():
            if m is not self and hasattr(m, "set_num_updates"):
                m.set_num_updates(n)


@pytest.fixture
def selections(monkeypatch):
    """Number of tensors in each call of the selection."""
    calls, select = [], selection.select_largest
    monkeypatch.setattr(selection, "select_largest", lambda rows, *a: calls.append(len(rows)) or select(rows, *a))
    return calls


def fairseq_step(model, seed):
    """Write to parameters like fairseq's optimizers, without changing version counters."""
    generator = torch.Generator().manual_seed(seed)
    for p in model.parameters():
        version = p._version
        p.data.copy_(torch.randn(p.shape, generator=generator))
        assert p._version == version


def assert_fresh(model):
    for layer in model.layers:
        mask = expected_mask(layer.scores, 0.5)
        assert torch.equal(layer.mask, mask) and torch.equal(layer.weight, layer.frozen_weight * mask)


X = torch.randn(3, 6, generator=torch.Generator().manual_seed(0))


def test_one_selection_per_shape_and_update(selections):
    model = Model().train()
    for update in range(3):
        for _ in range(2):  # gradient accumulation
            model.set_num_updates(update)
            model(X).sum().backward()
        assert selections == [2, 2] * (update + 1)


def test_validation_after_the_optimizer_sees_the_new_scores_and_selects_once(selections):
    model = Model().train()
    model.set_num_updates(0)
    model(X)
    fairseq_step(model, 1)
    model.eval()
    for _ in range(3):
        model(X)
    assert_fresh(model)
    assert selections == [2, 2, 2, 2]


def test_without_update_numbers_training_selects_at_every_use(selections):
    model = Model().train()
    model(X)
    model(X)
    assert selections == [1] * 8
    fairseq_step(model, 1)
    assert_fresh(model)


def test_activation_checkpointing_reuses_the_masks(selections):
    model = Model().train()
    model.set_num_updates(1)
    checkpoint(model, X, use_reentrant=False).sum().backward()
    recomputed = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    model(X).sum().backward()
    assert selections == [2, 2]
    assert all(torch.equal(a, p.grad) for a, p in zip(recomputed, model.parameters()))


def test_layers_alone_cache_too(selections):
    model = Model(shared=False).eval()
    model(X)
    model(X)
    assert selections == [1] * 4


@pytest.mark.parametrize("shared", [True, False])
def test_a_write_that_torch_counts_is_seen_also_in_evaluation(shared):
    model = Model(shared).eval()
    model(X)
    with torch.no_grad():
        model.layers[1].scores.mul_(torch.rand(6, 4))
        model.layers[2].frozen_weight.mul_(2)
    assert_fresh(model)


def test_forget_is_for_writes_that_nobody_sees():
    model = Model().eval()
    model(X)
    fairseq_step(model, 1)
    model.layers[0].mask_cache.forget()
    assert_fresh(model)


@pytest.mark.parametrize("event", [lambda m: m.load_state_dict(m.state_dict()), Model.half, Model.double])
def test_loading_and_converting_forget(event):
    # Stamps do not suffice, because a new tensor may have the address of the old one.
    model = Model().eval()
    model(X)
    cache = model.layers[0].mask_cache
    assert len(cache._kept) == 4
    event(model)
    assert not cache._kept


def test_masks_of_inference_mode_serve_in_training():
    model = Model().eval()
    with torch.inference_mode():
        model(X)
    x = X.clone().requires_grad_()
    model(x).sum().backward()
    model.train()(x).sum().backward()


actions = st.lists(
    st.sampled_from(
        [
            "update",
            "skip",
            "accumulate",
            "step",
            "step and validate",
            "eval",
            "load",
            "assign",
            "half",
            "copy",
            "pickle",
        ]
    ),
    max_size=12,
)


@settings(max_examples=120, deadline=None)
@given(actions, st.booleans(), st.booleans())
def test_masks_are_never_stale(plan, shared, counted):
    """Any order of training, evaluation, loading, LayerDrop and accumulation. ``counted`` means with update numbers."""
    model, n, seed = Model(shared), 0, 0

    def start_update():
        model.train()
        if counted:
            model.set_num_updates(n)

    for action in plan:
        seed += 1
        if action in ("update", "accumulate", "skip"):
            start_update()
            for _ in range(1 + (action == "accumulate")):
                model(X, skip=[0] if action == "skip" else []).sum().backward()
        elif action == "step":
            start_update()
            model(X)
            fairseq_step(model, seed)
            n += 1
            start_update()
        elif action == "step and validate":
            start_update()
            model(X, skip=[2])
            fairseq_step(model, seed)
            n += 1
            model.eval()
        elif action == "eval":
            model.eval()
            model(X)
        elif action in ("load", "assign"):
            state = copy.deepcopy(model.state_dict())
            for key in state:
                if "scores" in key:
                    state[key] = torch.randn(state[key].shape, generator=torch.Generator().manual_seed(seed))
            model.load_state_dict(state, assign=action == "assign")
        elif action == "half":
            model.bfloat16().float()
        elif action == "copy":
            model = copy.deepcopy(model)
        elif action == "pickle":
            stream = io.BytesIO()
            torch.save(model, stream)
            stream.seek(0)
            model = torch.load(stream, weights_only=False)
        assert_fresh(model)


def test_a_copy_holds_no_masks():
    model = Model().eval()
    model(X)
    cache = model.layers[0].mask_cache
    twin = copy.deepcopy(model).layers[3].mask_cache
    assert cache._kept and not twin._kept and twin is not cache and len(twin.members) == 4


def test_global_scope_ranks_the_tensors_of_a_cache_together():
    model = Model(scope="global", keep_ratio=0.25)
    for factor in (100, 0):
        with torch.no_grad():
            model.layers[0].scores.mul_(factor)
        expected = expected_masks_together([layer.scores.detach() for layer in model.layers], 0.25)
        # A quarter of the 4 * 24 entries is kept. The first layer keeps nearly all or none of its entries.
        assert sum(m.sum() for m in expected) == 24 and (expected[0].sum() > 20) == (factor == 100)
        for mode in (False, True):
            model.train(mode)
            assert all(torch.equal(layer.mask, m) for layer, m in zip(model.layers, expected))


def test_global_scope_without_a_shared_cache_is_that_of_each_tensor():
    model = Model(shared=False, scope="global", keep_ratio=0.25)
    assert [int(layer.mask.sum()) for layer in model.layers] == [6] * 4


def test_global_scope_with_pinned_entries_keeps_the_count():
    model = Model(scope="global", keep_ratio=0.25, pin=0.5)
    assert sum(layer.mask.sum() for layer in model.layers) == 24


def test_global_scope_with_a_tensor_that_is_wholly_pinned():
    # A pin of 0.8 pins 2 entries in rows of 2 (1.6 rounded) and 10 in rows of 12 (9.6): the first layer has no scores.
    # 0.25 of 48 entries is 12.
    narrow, wide = (
        MaskedLinear(width, 48 // width // 2, 0.25, seed=1, name=f"{width}", scope="global", pin=0.8)
        for width in (2, 12)
    )
    model = nn.ModuleList([narrow, wide])
    share_mask_cache(model)
    assert narrow.scores is None and wide.scores is not None
    assert torch.equal(narrow.mask, narrow.pinned) and narrow.mask.sum() + wide.mask.sum() == 12


def test_schedule_follows_the_update_number_and_is_stored():
    options = dict(keep_ratio=0.5, keep_schedule=((10, 0.5),))
    model, kept = Model(**options).train(), {}
    for n in (0, 2, 10, 50):
        model.set_num_updates(n)
        kept[n] = [int(layer.mask.sum()) for layer in model.layers]
    # 24 * (1 - 0.05 * 2) = 21.6, rounded to 22.
    assert kept == {0: [24] * 4, 2: [22] * 4, 10: [12] * 4, 50: [12] * 4}
    model.set_num_updates(4)
    state = copy.deepcopy(model.state_dict())
    assert state["layers.0.num_updates"] == 4
    other = Model(**options).eval()
    other(X)
    other.load_state_dict(state)
    # 24 * 0.8 = 19.2, rounded to 19.
    assert [int(layer.mask.sum()) for layer in other.layers] == [19] * 4


def test_nan_scores_are_named_and_keep_the_count():
    model = Model()
    assert nan_scores(model) == []
    with torch.no_grad():
        model.layers[2].scores[0, :3] = torch.nan
    assert nan_scores(model) == ["layers.2.scores"]
    assert nan_scores(model.layers[2]) == ["scores"]
    assert model.layers[2].mask.sum() == 12
    assert nan_scores(nn.Linear(2, 2)) == []


def test_masked_modules_by_name():
    assert list(masked_modules(Model())) == [f"layers.{i}" for i in range(4)]


@pytest.mark.parametrize("memory_efficient", [False, True])
def test_under_fairseqs_bf16_optimizers_scores_move_in_float32_and_masks_follow(memory_efficient):
    from fairseq.dataclass.configs import FairseqConfig
    from fairseq.models import BaseFairseqModel
    from fairseq.optim.adam import FairseqAdamConfig
    from fairseq.optim.fp16_optimizer import FP16Optimizer, MemoryEfficientFP16Optimizer
    from omegaconf import OmegaConf

    class FairseqModel(BaseFairseqModel):
        def __init__(self):
            super().__init__()
            self.body = Model()

    cfg = OmegaConf.structured(FairseqConfig)
    cfg.common.bf16 = True
    cfg.optimizer = OmegaConf.structured(FairseqAdamConfig)
    cfg.optimizer._name, cfg.optimizer.lr = "adam", [0.02]
    model = FairseqModel().to(torch.bfloat16).train()
    optimizer = (MemoryEfficientFP16Optimizer if memory_efficient else FP16Optimizer).build_optimizer(
        cfg, [p for p in model.parameters() if p.requires_grad]
    )
    scores, masks = model.body.layers[0].scores, []
    for update in range(3):
        model.set_num_updates(update)
        assert_fresh(model.body)
        masks.append(model.body.layers[0].mask)
        before = scores.detach().clone()
        optimizer.zero_grad()
        optimizer.backward(model.body(X.bfloat16()).float().pow(2).sum())
        optimizer.clip_grad_norm(1.0)
        optimizer.step()
        assert scores.dtype == torch.float32 and not torch.equal(scores, scores.bfloat16().float())
        assert (scores - before).abs().mean() > 0.005
    assert not torch.equal(masks[0], masks[2])


class Launches(TorchDispatchMode):
    """Counts operations other than views. Each of them is launched separately on a device."""

    VIEWS = (
        "view",
        "_unsafe_view",
        "reshape",
        "unbind",
        "expand",
        "unsqueeze",
        "squeeze",
        "slice",
        "select",
        "split",
        "detach",
        "alias",
        "t",
    )

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func.overloadpacket.__name__ not in self.VIEWS
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("mask_dtype", [torch.bool, torch.int8])
def test_the_product_of_devices_has_the_bits_of_the_product_on_a_cpu(dtype, mask_dtype):
    weight, mask = torch.randn(50, 7).to(dtype), torch.randint(-1 if mask_dtype == torch.int8 else 0, 2, (50, 7))
    mask = mask.to(mask_dtype)
    product = torch.mul(weight, mask)
    assert product.dtype == dtype and product.view(torch.uint8).equal(mask.to(dtype).mul_(weight).view(torch.uint8))


def test_an_update_of_masks_is_one_selection_and_one_operation_for_each_tensor():
    """On a device, all tensors of a shape are selected together. Then each mask is multiplied by its weight."""

    def launches(tensors):
        model = nn.ModuleList(MaskedWeight(4, 6, seed=1, name=str(number)) for number in range(tensors)).to("meta")
        cache = share_mask_cache(model)
        cache.set_num_updates(1)
        with Launches() as seen:
            cache.get(model[0])
        return seen.count

    assert launches(9) - launches(3) == 6
    assert launches(3) <= 20
