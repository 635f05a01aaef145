"""The one-layer supermask model: one storage per stack, exact masks that all attention paths see, and folding."""

import copy
import hashlib

import pytest
import torch

from fairseq_reservoir import dry_build, philox
from fairseq_reservoir.errors import InputError
from fairseq_reservoir.modules.mask_cache import masked_modules
from fairseq_reservoir.modules.masked_linear import MaskedLinear
from fairseq_reservoir.modules.topk_mask import topk_mask
from tests.building import build_supermask, logits, loss, pad, sentences, shift

SOURCE, TARGET = pad(sentences(6, 4, 5)), pad(sentences(5, 7, 3, seed=2))


def pointers(model, stack, part):
    return [layer.get_submodule(part).frozen_weight.data_ptr() for layer in getattr(model, stack).layers]


def storage_is_shared(model):
    everything = []
    for stack, parts in (("encoder", ["self_attn.q_proj", "fc1"]), ("decoder", ["self_attn.q_proj", "encoder_attn.q_proj"])):
        for part in parts:
            owned = getattr(model, stack).random_layer.get_buffer(part.replace(".", "_"))
            assert set(pointers(model, stack, part)) == {owned.data_ptr()}
            everything.append(owned.data_ptr())
    scores = [m.scores.data_ptr() for m in masked_modules(model).values()]
    return len(set(everything)) == len(everything) and len(set(scores)) == len(scores)


def test_one_storage_per_stack_through_conversion_copy_and_loading():
    model = build_supermask()
    assert storage_is_shared(model)
    assert storage_is_shared(copy.deepcopy(model))
    other = build_supermask(torch_seed=5)
    other.load_state_dict(model.state_dict())
    assert storage_is_shared(other)
    assert storage_is_shared(model.half()) and model.encoder.layers[0].fc1.scores.dtype == torch.float32


def test_without_sharing_every_layer_has_weights_of_its_own():
    model = build_supermask(mask_share="none")
    assert len(set(pointers(model, "encoder", "fc1"))) == 3
    assert not list(model.encoder.random_layer.buffers())


def test_a_checkpoint_stores_the_random_layer_once():
    one, two = (
        sum(t.numel() for n, t in build_supermask(encoder_layers=n).encoder.state_dict().items() if "score" not in n and "norm" not in n)
        for n in (1, 5)
    )
    assert one == two


def test_random_weights_and_scores_depend_on_seed_and_name_only():
    def digest(model):
        return {
            name: hashlib.sha256(tensor.numpy().tobytes()).hexdigest()
            for name, tensor in model.state_dict().items()
            if "random_layer" in name or name.endswith((".scores", "frozen_weight"))
        }

    first, again, deeper = digest(build_supermask()), digest(build_supermask(torch_seed=9)), digest(build_supermask(encoder_layers=4))
    assert first == again
    assert {name: deeper[name] for name in first} == first
    assert digest(build_supermask(mask_seed=2)) != first


def test_only_scores_and_layernorms_are_trained():
    names = {n for n, p in build_supermask().named_parameters() if p.requires_grad}
    assert all(n.endswith(".scores") or "layer_norm" in n for n in names)
    plain = {n for n, p in build_supermask(mask_layernorm="plain").named_parameters() if p.requires_grad}
    assert plain == {n for n in names if n.endswith(".scores")}


@pytest.mark.parametrize("keep", [0.1, 0.5, 0.7])
def test_every_mask_has_the_exact_number_of_ones(keep):
    for name, module in masked_modules(build_supermask(mask_keep_ratio=keep)).items():
        n = module.frozen_weight.numel()
        assert int(module.mask.sum()) == max(1, int(keep * n + 0.5)), name


def test_score_gradients_also_where_the_mask_is_zero():
    model = build_supermask()
    model.set_num_updates(1)
    linear = model.encoder.layers[1].fc1
    kept = linear.weight.detach().clone().requires_grad_()
    loss(model, SOURCE, TARGET).backward()
    got = linear.scores.grad.clone()
    # the same network with a plain weight in this one place
    plain = torch.nn.Linear(8, 12, bias=False)
    plain.weight = torch.nn.Parameter(kept.detach())
    model.encoder.layers[1].fc1 = plain
    loss(model, SOURCE, TARGET).backward()
    assert torch.allclose(got, plain.weight.grad * linear.frozen_weight * linear.scores.sign(), rtol=1e-5, atol=1e-7)
    assert got[~linear.mask].abs().max() > 0


@pytest.mark.parametrize("part", ["self_attn", "encoder_attn"])
@pytest.mark.parametrize("training", [True, False])
def test_attention_cannot_bypass_the_mask(part, training):
    model = build_supermask().train(training)
    model.set_num_updates(1)
    before = logits(model, SOURCE, shift(TARGET))
    with torch.no_grad():
        for projection in ("q_proj", "k_proj", "v_proj", "out_proj"):
            scores = getattr(getattr(model.decoder.layers[0], part), projection).scores
            scores.copy_(1 / scores)  # the largest become the smallest
    model.set_num_updates(2)
    assert (logits(model, SOURCE, shift(TARGET)) - before).abs().max() > 1e-3


def test_incremental_decoding_equals_teacher_forcing():
    model = build_supermask().eval()
    encoded, previous, state = model.encoder(SOURCE), shift(TARGET)[1:2].repeat(3, 1), {}
    with torch.no_grad():
        forced = model.decoder(previous, encoded)[0]
        steps = [model.decoder(previous[:, : t + 1], encoded, incremental_state=state)[0] for t in range(previous.size(1))]
    assert torch.allclose(torch.cat(steps, 1), forced, atol=1e-5)


@pytest.mark.parametrize("tied", [True, False])
def test_folding_for_inference_changes_nothing_but_the_modules(tied):
    model = build_supermask(share_decoder_input_output_embed=tied).eval()
    expected = logits(model, SOURCE, shift(TARGET))
    model.make_generation_fast_()
    assert torch.allclose(logits(model, SOURCE, shift(TARGET)), expected, atol=1e-5)
    assert not masked_modules(model) and not any(isinstance(m, MaskedLinear) for m in model.modules())


def test_tied_embeddings_have_one_score_tensor_and_padding_stays_zero():
    model = build_supermask()
    assert model.decoder.output_projection.embedding is model.decoder.embed_tokens
    loss(model, SOURCE, TARGET).backward()
    embedding = model.decoder.embed_tokens
    assert embedding.weight[1].abs().max() == 0 and embedding(torch.tensor([1])).abs().max() == 0
    joined = build_supermask(share_all_embeddings=True)
    assert joined.encoder.embed_tokens is joined.decoder.embed_tokens


def test_masks_are_never_stale():
    model = build_supermask(encoder_layerdrop=0.5)

    def fresh():
        for name, m in masked_modules(model).items():
            assert torch.equal(m.mask, topk_mask(m.scores.detach(), 0.5).bool()), name

    other = build_supermask(mask_seed=1, torch_seed=4)
    with torch.no_grad():
        for m in masked_modules(other).values():
            m.scores.uniform_(-1, 1)
    model.set_num_updates(1)
    loss(model, SOURCE, TARGET).backward()
    for m in masked_modules(model).values():
        m.scores.data.add_(torch.randn_like(m.scores))  # as fairseq's optimizers write
    model.set_num_updates(2)
    fresh()
    model.eval()
    fresh()
    model.load_state_dict(other.state_dict())
    fresh()
    model.train()
    fresh()


@pytest.mark.parametrize("how, trained", [("masked", ".scores"), ("trained", ".weight"), ("frozen", None)])
def test_embeddings(how, trained):
    model = build_supermask(mask_embeddings=how)
    names = {n for n, p in model.named_parameters() if p.requires_grad and "embed_tokens" in n}
    assert names == ({f"{stack}.embed_tokens{trained}" for stack in ("encoder", "decoder")} if trained else set())
    if how == "frozen":
        drawn = philox.normal(1, "encoder.embed_tokens.weight", (20, 8)) / 8**0.5
        assert torch.allclose(model.encoder.embed_tokens.weight[2:].double(), drawn[2:], atol=1e-6)
        assert model.encoder.embed_tokens.weight[1].abs().max() == 0


def test_the_papers_parameter_counts():
    """IWSLT small, dictionaries of 8,848 and 6,632: 39.4 M scores, 13.17 M random weights, of which half is kept."""
    flags = ["--mask-layernorm", "plain"]
    table = dry_build.build_arch("supermask_one_layer_transformer_iwslt_de_en", flags, 8848, 6632).slot_table
    random = sum(e.size for e in table.entries if e.seen_by)
    # layer pairs: 4 * 512^2 + 2 * 512 * 1024 = 2,097,152 and 8 * 512^2 + 2 * 512 * 1024 = 3,145,728
    assert random == 2_097_152 + 3_145_728 + (8848 + 6632) * 512 == 13_168_640
    assert table.trained_parameters == 6 * 2_097_152 + 6 * 3_145_728 + (8848 + 6632) * 512 == 39_383_040


def test_the_scale_keeps_activations_independent_of_the_kept_share():
    def spread(keep):
        linear = build_supermask(mask_keep_ratio=keep, encoder_embed_dim=128, encoder_ffn_embed_dim=256).encoder.layers[0].fc1
        x = torch.randn(512, 128, generator=torch.Generator().manual_seed(1))
        return float(linear(x).detach().std())

    reference = spread(1.0)
    assert all(abs(spread(keep) / reference - 1) < 0.1 for keep in (0.1, 0.3, 0.5, 0.9))


def test_paper_code_reproduces_the_mixture():
    layer = build_supermask(mask_init_weights="paper_code", encoder_embed_dim=64, encoder_ffn_embed_dim=128).encoder.layers[0]
    bounds = {
        "self_attn.q_proj": (6 / 128) ** 0.5 / 2**0.5,  # Xavier uniform of 64 + 64, gain 1 / sqrt 2
        "self_attn.out_proj": (6 / 128) ** 0.5,
        "fc1": (6 / 64) ** 0.5,  # Kaiming uniform of fan-in 64, not scaled
        "fc2": (6 / 128) ** 0.5,
    }
    for part, bound in bounds.items():
        largest = float(layer.get_submodule(part).frozen_weight.abs().max())
        assert 0.99 * bound < largest <= bound * 1.000001


@pytest.mark.parametrize(
    "options, message",
    [
        ({"mask_keep_ratio": 0.0}, "--mask-keep-ratio 0.0: must be greater than 0 and at most 1"),
        ({"mask_keep_ratio": 1.5}, "--mask-keep-ratio 1.5: must be"),
        ({"mask_keep_ratio": float("nan")}, "--mask-keep-ratio nan: must be"),
        ({"mask_coats": "0.3,0.4"}, "--mask-coats '0.3,0.4': "),
        ({"mask_coats": "a"}, "--mask-coats 'a': a comma list"),
        ({"mask_keep_schedule": "500:0.5,100:0.7"}, "--mask-keep-schedule '500:0.5,100:0.7': "),
        ({"mask_init_weights": "normal"}, "--mask-init-weights 'normal': choose from kaiming_uniform,"),
        ({"mask_pin": 1.0}, "--mask-pin 1.0: "),
        ({"mask_kind": "signed", "mask_scores": "value"}, "--mask-kind "),
        ({"freeze": "att,ffn,emb,ln"}, "freezes every parameter"),
        ({"mask_random": True, "mask_layernorm": "plain"}, "freezes every parameter"),
    ],
)
def test_refusals_name_the_flag(options, message):
    with pytest.raises(InputError) as error:
        build_supermask(**options)
    assert message in str(error.value) and "\n" not in str(error.value)
