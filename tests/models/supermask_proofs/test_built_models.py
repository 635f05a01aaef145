"""Six of ten proofs that a supermask model is right, all without training. ``test_trained_models`` has the others."""

import pytest
import torch
from torch.nn import functional

from fairseq_reservoir.masks.masked_linear import MaskedLinear
from fairseq_reservoir.masks.masked_weight import masked_modules
from tests.support.building import build_supermask, logits, loss, pad, sentences, shift
from tests.support.masks_by_sorting import expected_mask, flip, number_kept

SOURCE, TARGET = pad(sentences(6, 4, 5)), pad(sentences(5, 7, 3, seed=2))
SCORES = {
    "random": lambda s: s.uniform_(-1, 1),
    "tied": lambda s: s.uniform_(-3, 3).round_(),
    "constant": lambda s: s.fill_(-0.25),
    "of 16 bits": lambda s: s.copy_(s.half()),
}


def score(model, how):
    with torch.no_grad():
        for module in masked_modules(model).values():
            SCORES[how](module.scores)


@pytest.mark.parametrize("how", SCORES)
@pytest.mark.parametrize("keep", [0.1, 0.5, 0.7])
def test_2_every_mask_has_the_exact_number_of_ones(keep, how):
    model = build_supermask(mask_keep_ratio=keep)
    score(model, how)
    for convert in (model.float, model.half):
        for name, module in masked_modules(convert()).items():
            assert module.mask.sum() == number_kept(keep, module.frozen_weight.numel()), (name, convert)


def test_2_keeping_everything_is_the_dense_layer():
    model, dense = build_supermask(mask_keep_ratio=1.0), build_supermask(mask_keep_ratio=1.0)
    dense.make_generation_fast_()  # ordinary modules
    for name, module in masked_modules(model).items():
        assert module.mask.all() and dense.get_submodule(name).weight.equal(module.frozen_weight), name
        if isinstance(module, MaskedLinear):
            x = torch.randn(3, module.in_features)
            assert module(x).equal(functional.linear(x, module.frozen_weight))
    assert torch.allclose(logits(model, SOURCE, shift(TARGET)), logits(dense, SOURCE, shift(TARGET)), atol=1e-5)


def test_3_gradients_of_all_scores_also_where_the_mask_is_zero():
    model, ordinary = build_supermask(), build_supermask()
    ordinary.make_generation_fast_()
    ordinary.requires_grad_(True)  # the masked weights as parameters W'
    for network in (model, ordinary):
        loss(network, SOURCE, TARGET).backward()
    for name, module in masked_modules(model).items():
        expected = ordinary.get_submodule(name).weight.grad * module.frozen_weight * module.scores.sign()
        torch.testing.assert_close(module.scores.grad, expected, rtol=1e-4, atol=1e-6)
        assert module.scores.grad[~module.mask].abs().max() > 0, name
        assert module.frozen_weight.grad is None and not module.frozen_weight.requires_grad


def by_steps(model, source, previous):
    """Logits of incremental decoding."""
    encoded, state = model.encoder(source), {}
    steps = [model.decoder(previous[:, : t + 1], encoded, incremental_state=state)[0] for t in range(previous.size(1))]
    return torch.cat(steps, 1)


ATTENTIONS = ["encoder.layers.0.self_attn", "decoder.layers.0.self_attn", "decoder.layers.0.encoder_attn"]


@pytest.mark.parametrize("mode", ["training", "evaluation", "incremental decoding"])
@pytest.mark.parametrize("attention", ATTENTIONS)
def test_4_no_attention_bypasses_its_masks(monkeypatch, attention, mode):
    fused, calls = functional.multi_head_attention_forward, []
    monkeypatch.setattr(functional, "multi_head_attention_forward", lambda *a, **k: calls.append(1) or fused(*a, **k))
    model = build_supermask().train(mode == "training")
    compute, update = by_steps if mode == "incremental decoding" else logits, 1
    model.set_num_updates(update)
    with torch.no_grad():
        before = compute(model, SOURCE, shift(TARGET))
        # Fused attention is used in 3 encoder layers and, except in incremental decoding, in the self-attention of 2 decoder layers.
        assert len(calls) == (3 if mode == "incremental decoding" else 5)
        for projection in ("q_proj", "k_proj", "v_proj", "out_proj"):
            flip(model.get_submodule(f"{attention}.{projection}").scores)
            update += 1
            model.set_num_updates(update)
            after = compute(model, SOURCE, shift(TARGET))
            assert (after - before).abs().max() > 1e-3, projection
            before = after


def test_4_incremental_decoding_equals_teacher_forcing():
    model = build_supermask().eval()
    previous = shift(TARGET)[1:2].repeat(3, 1)  # without padding
    with torch.no_grad():
        forced = logits(model, SOURCE, previous)
        assert torch.allclose(by_steps(model, SOURCE, previous), forced, atol=1e-5)


def test_6_the_mask_in_use_is_the_one_of_the_scores():
    model = build_supermask(encoder_layerdrop=0.5)

    def assert_fresh():
        for name, module in masked_modules(model).items():
            expected = expected_mask(module.scores, 0.5)
            assert module.mask.equal(expected) and module.weight.equal(module.frozen_weight * expected), name

    def train(update):
        model.train().set_num_updates(update)
        assert_fresh()
        loss(model, SOURCE, TARGET).backward()  # for some of the layers
        for module in masked_modules(model).values():
            module.scores.data.add_(
                torch.randn_like(module.scores)
            )  # like fairseq's optimizers, without changing torch's version counter

    other = build_supermask()
    score(other, "random")
    for update in range(3):
        train(update)
        model.eval()
        assert_fresh()
        loss(model, SOURCE, TARGET)
    model.load_state_dict(other.state_dict())  # in evaluation mode
    assert_fresh()
    train(3)


def spreads(keep, **options):
    """RMS output / RMS input of every masked matrix, and the standard deviation before every activation.

    Means over three models of 256 / 512 dimensions, with layers of 4 + 2 and of 8 + 2 matrices.
    """
    source, target = torch.randint(4, 500, (2, 24, 16), generator=torch.Generator().manual_seed(1))
    sizes = {"encoder_embed_dim": 256, "encoder_ffn_embed_dim": 512, "words": (500, 500)}
    gains, before_activations = torch.zeros(3 * 6 + 2 * 10), torch.zeros(3 + 2)
    for seed in (1, 2, 3):
        model, found, hidden = build_supermask(mask_keep_ratio=keep, mask_seed=seed, **sizes, **options), [], []
        for name, module in model.named_modules():
            if hasattr(module, "skip_embed_dim_check"):
                module.skip_embed_dim_check = True  # fused attention calls none of its projections
            if isinstance(module, MaskedLinear):
                module.register_forward_hook(
                    lambda module, x, y: found.append((y.square().mean() / x[0].square().mean()).sqrt())
                )
            if name.endswith("fc1"):
                module.register_forward_hook(lambda module, x, y: hidden.append(y.std()))
        with torch.no_grad():
            logits(model, source, shift(target))
        gains += torch.stack(found) / 3
        before_activations += torch.stack(hidden) / 3
    return gains, before_activations


@pytest.mark.parametrize(
    "scope", ["row", *(pytest.param(scope, marks=pytest.mark.slow) for scope in ("tensor", "global"))]
)
def test_9_activations_at_the_start_do_not_depend_on_the_share_kept(scope):
    dense = spreads(1.0)
    for keep in (0.1, 0.5):
        for found, expected in zip(spreads(keep, mask_scope=scope), dense):
            assert (found / expected - 1).abs().max() < 0.1, keep


def test_9_without_the_scale_they_do():
    # Without scaling, a matrix with a keep ratio of 0.1 has sqrt(1 / 10) = 0.32 times the output of the whole matrix.
    unscaled = {"mask_init_weights": "paper_code"}
    assert (spreads(0.1, **unscaled)[0] / spreads(1.0, **unscaled)[0]).max() < 0.5


@pytest.mark.parametrize("how", SCORES)
def test_10_the_kth_largest_score_bounds_the_mask_that_a_sort_gives(how):
    """Of scores equal to the k-th largest one, those with the lowest indices are kept."""
    model = build_supermask(mask_keep_ratio=0.3)
    score(model, how)
    for name, module in masked_modules(model).items():
        assert module.mask.equal(expected_mask(module.scores, 0.3)), name
        keys, mask = module.scores.detach().abs().flatten(), module.mask.flatten()
        count = number_kept(0.3, keys.numel())
        threshold = keys.kthvalue(keys.numel() - count + 1).values
        tied = (keys == threshold).nonzero().flatten()
        assert mask[keys > threshold].all() and not mask[keys < threshold].any()
        assert mask[tied].equal(torch.arange(len(tied)) < count - int((keys > threshold).sum()))
