"""The one-layer supermask model: shared storage, trained parameters, folding, errors. ``supermask_proofs`` has the rest."""

import copy
import hashlib
from functools import partial

import pytest
import torch

from fairseq_reservoir.errors import InputError
from fairseq_reservoir.masks.masked_linear import MaskedLinear
from fairseq_reservoir.masks.masked_weight import masked_modules
from fairseq_reservoir.random_tensors import philox
from tests.support.building import build, build_lm, build_roberta, build_supermask, logits, pad, sentences, shift

SOURCE, TARGET = pad(sentences(6, 4, 5)), pad(sentences(5, 7, 3, seed=2))


def pointers(model, stack, part):
    return [layer.get_submodule(part).frozen_weight.data_ptr() for layer in getattr(model, stack).layers]


def storage_is_shared(model):
    everything = []
    for stack, parts in (
        ("encoder", ["self_attn.q_proj", "fc1"]),
        ("decoder", ["self_attn.q_proj", "encoder_attn.q_proj"]),
    ):
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
        sum(
            t.numel()
            for n, t in build_supermask(encoder_layers=n).encoder.state_dict().items()
            if "score" not in n and "norm" not in n
        )
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

    first, again, deeper = (
        digest(build_supermask()),
        digest(build_supermask(torch_seed=9)),
        digest(build_supermask(encoder_layers=4)),
    )
    assert first == again
    assert {name: deeper[name] for name in first} == first
    assert digest(build_supermask(mask_seed=2)) != first


def test_only_scores_and_layernorms_are_trained():
    names = {n for n, p in build_supermask().named_parameters() if p.requires_grad}
    assert all(n.endswith(".scores") or "layer_norm" in n for n in names)
    plain = {n for n, p in build_supermask(mask_layernorm="plain").named_parameters() if p.requires_grad}
    assert plain == {n for n in names if n.endswith(".scores")}


@pytest.mark.parametrize("tied", [True, False])
def test_folding_for_inference_changes_nothing_but_the_modules(tied):
    model = build_supermask(share_decoder_input_output_embed=tied).eval()
    expected = logits(model, SOURCE, shift(TARGET))
    model.make_generation_fast_()
    assert torch.allclose(logits(model, SOURCE, shift(TARGET)), expected, atol=1e-5)
    assert not masked_modules(model) and not any(isinstance(m, MaskedLinear) for m in model.modules())


def test_both_sides_may_share_their_embeddings():
    model = build_supermask(share_all_embeddings=True)
    assert model.encoder.embed_tokens is model.decoder.embed_tokens


@pytest.mark.parametrize("how, trained", [("masked", ".scores"), ("trained", ".weight"), ("frozen", None)])
def test_embeddings(how, trained):
    model = build_supermask(mask_embeddings=how)
    names = {n for n, p in model.named_parameters() if p.requires_grad and "embed_tokens" in n}
    assert names == ({f"{stack}.embed_tokens{trained}" for stack in ("encoder", "decoder")} if trained else set())
    if how == "frozen":
        drawn = torch.from_numpy(philox.normal(1, "encoder.embed_tokens.weight", (20, 8))) / 8**0.5
        assert torch.allclose(model.encoder.embed_tokens.weight[2:].double(), drawn[2:], atol=1e-6)
        assert model.encoder.embed_tokens.weight[1].abs().max() == 0


def test_signed_fairseq_has_the_sizes_of_a_trained_transformers_start():
    sizes = {
        f"{stack}_{dim}": n
        for stack in ("encoder", "decoder")
        for dim, n in (("embed_dim", 64), ("ffn_embed_dim", 128))
    }
    masked = build_supermask(mask_init_weights="signed_fairseq", mask_keep_ratio=0.25, **sizes)
    trained = build("L", "L", words=(200, 200), **sizes)
    parts = [f"self_attn.{p}_proj" for p in ("q", "k", "v", "out")] + [
        f"encoder_attn.{p}_proj" for p in ("q", "k", "v", "out")
    ]
    for name in [f"decoder.layers.0.{part}" for part in (*parts, "fc1", "fc2")] + ["encoder.embed_tokens"]:
        weight = masked.get_submodule(name).frozen_weight
        size = float(weight[2:].abs().max()) * 0.25**0.5  # variance after the mask
        assert size == pytest.approx(float(trained.get_submodule(name).weight[2:].std()), rel=0.05), name
        assert weight[2:].abs().min() == weight.abs().max()


def test_paper_code_reproduces_the_mixture():
    layer = build_supermask(
        mask_init_weights="paper_code", encoder_embed_dim=64, encoder_ffn_embed_dim=128
    ).encoder.layers[0]
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
    "init, bound", [("kaiming_uniform", (6 / 64) ** 0.5), ("xavier_uniform", (6 / (64 + 128)) ** 0.5)]
)
def test_unscaled_weights_lack_the_factor_of_the_kept_share(init, bound):
    """Bounds of a matrix of 64 columns and 128 rows. With a quarter kept, the scale is sqrt(4)."""
    for suffix, factor in (("", 2), ("_unscaled", 1)):
        model = build_supermask(
            mask_init_weights=init + suffix, mask_keep_ratio=0.25, encoder_embed_dim=64, encoder_ffn_embed_dim=128
        )
        largest = float(model.encoder.layers[0].fc1.frozen_weight.abs().max())
        assert 0.99 * factor * bound < largest <= factor * bound * 1.000001


@pytest.mark.parametrize(
    "options, message",
    [
        ({"mask_keep_ratio": 0.0}, "--mask-keep-ratio 0: must be greater than 0 and at most 1"),
        ({"mask_keep_ratio": 1.5}, "--mask-keep-ratio 1.5: must be"),
        ({"mask_keep_ratio": float("nan")}, "--mask-keep-ratio nan: must be"),
        ({"mask_coats": "0.3,0.4"}, "--mask-coats '0.3,0.4': "),
        ({"mask_coats": "a"}, "--mask-coats 'a': must be shares"),
        ({"mask_keep_schedule": "500:0.5,100:0.7"}, "--mask-keep-schedule '500:0.5,100:0.7': "),
        ({"mask_init_weights": "normal"}, "--mask-init-weights 'normal': choose from kaiming_uniform,"),
        ({"mask_pin": 1.0}, "--mask-pin 1.0: "),
        (
            {"mask_random": True, "mask_pin": 0.5},
            "--mask-pin 0.5: cannot be combined with --mask-random, because random masks are not trained",
        ),
        ({"embed_min_coverage": float("nan")}, "--embed-min-coverage nan: must be from 0 to 1"),
        ({"mask_kind": "signed", "mask_scores": "value"}, "--mask-kind "),
        ({"freeze": "att,ffn,emb,ln"}, "freezes every parameter"),
        ({"mask_random": True, "mask_layernorm": "plain"}, "freezes every parameter"),
    ],
)
def test_refusals_name_the_flag(options, message):
    with pytest.raises(InputError) as error:
        build_supermask(**options)
    assert message in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    "make", [build_supermask, partial(build_lm, "supermask_one_layer_transformer_lm"), build_roberta]
)
def test_a_model_built_in_inference_mode_answers_there_and_is_trained_elsewhere(make):
    def answer(model):
        source = (SOURCE, None) if make is build_supermask else ()
        return model(*source, shift(TARGET))[0]

    ordinary = make(mask_keep_schedule="10:0.5").eval()
    others = {name: t.flip(0) if name.endswith(".scores") else t for name, t in ordinary.state_dict().items()}
    with torch.no_grad():
        expected = [answer(ordinary)]
        ordinary.load_state_dict(dict(others))
        expected.append(answer(ordinary))
    with torch.inference_mode():
        built = make(mask_keep_schedule="10:0.5").eval()
        found = [answer(built)]
        built.load_state_dict(dict(others))
        found.append(answer(built))
        assert answer(make().half().float().eval()).isfinite().all()
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(found, expected, strict=True))
    built.train().set_num_updates(3)
    answer(built).sum().backward()
    assert all(module.scores.grad.any() for module in masked_modules(built).values())


def test_a_checkpoint_loads_with_any_minimum_coverage_of_the_vectors():
    """--embed-min-coverage is checked when a file of vectors is read. No tensor depends on it, unlike on --mask-keep-ratio."""
    state = build_supermask(embed_min_coverage=0.2).state_dict()
    build_supermask(embed_min_coverage=0.5).load_state_dict(dict(state))
    with pytest.raises(InputError, match="--mask-keep-ratio 0.3: the checkpoint was trained with 0.5"):
        build_supermask(mask_keep_ratio=0.3).load_state_dict(dict(state))


def test_a_checkpoint_of_vectors_from_a_file_is_taken_with_more_frozen():
    """Its masked table differs from the one drawn from the seed, and this is not checked."""
    model, state = build_supermask(freeze="encoder.ffn"), build_supermask().state_dict()
    name = next(name for name in model.recipes if "embed_tokens" in name)
    state[name] = state[name] + 1
    model.load_state_dict(dict(state))
    assert model.state_dict()[name].equal(state[name])


def test_a_masked_layer_made_in_inference_mode():
    with torch.inference_mode():
        layer = MaskedLinear(8, 3, seed=1).eval()
        assert layer(torch.eye(8)).equal(MaskedLinear(8, 3, seed=1).eval()(torch.eye(8)))
