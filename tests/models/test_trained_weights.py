"""--mask-trained-weights: shared modules, trained parameters, slot table, folding, errors."""

import copy

import pytest
import torch

from fairseq_reservoir.checkpoint.ledger import ledger
from fairseq_reservoir.errors import InputError
from fairseq_reservoir.masks.masked_weight import masked_modules
from fairseq_reservoir.masks.rounded_weight import rounded_modules
from tests.support.building import build, build_lm, build_roberta, build_supermask, logits, loss, pad, sentences, shift

SOURCE, TARGET = pad(sentences(6, 4, 5)), pad(sentences(5, 7, 3, seed=2))
BUILD = {"transformer": build_supermask, "language model": build_lm, "roberta": build_roberta}
KINDS = ["sign", "ternary", "4", "16"]


def latents(model):
    return {name for name, _ in model.named_parameters() if name.endswith(".latent")}


@pytest.mark.parametrize("kind", BUILD)
def test_every_masked_module_has_its_counterpart_and_nothing_is_random(kind):
    arch = {"arch": "supermask_one_layer_transformer_lm"} if kind == "language model" else {}
    model, masked = (
        BUILD[kind](mask_share="none", **arch, **options) for options in ({"mask_trained_weights": "sign"}, {})
    )
    ours, theirs = rounded_modules(model), masked_modules(masked)
    assert {n: m.weight_shape for n, m in ours.items()} == {n: m.weight_shape for n, m in theirs.items()}
    assert not masked_modules(model) and not any("embed_positions" not in name for name in model.recipes)


def test_one_layer_for_all_depths_or_each_its_own():
    shared, own = (build_supermask(mask_trained_weights="ternary", mask_share=share) for share in ("layer", "none"))
    # 6 matrices in the encoder's layer, 10 in the decoder's; 3 layers and 2; two tables
    assert len(latents(shared)) == 6 + 10 + 2 and len(latents(own)) == 3 * 6 + 2 * 10 + 2
    for model in (shared, copy.deepcopy(shared), copy.deepcopy(shared).half().float()):
        assert {layer.fc1.owner for layer in model.encoder.layers} == {model.encoder.shared_layer.fc1}
        assert {layer.self_attn.q_proj.owner for layer in model.decoder.layers} == {
            model.decoder.shared_layer.self_attn.q_proj
        }
    assert len({layer.self_attn_layer_norm for layer in shared.encoder.layers}) == 3
    assert len({layer.fc1 for layer in own.encoder.layers}) == 3


def test_a_shared_layer_learns_from_all_depths():
    model = build_supermask(mask_trained_weights="4")
    loss(model, SOURCE, TARGET).backward()
    whole = model.encoder.shared_layer.fc1.latent.grad
    alone = []
    for kept in range(3):
        twin = build_supermask(mask_trained_weights="4")
        for depth, layer in enumerate(twin.encoder.layers):
            if depth != kept:
                layer.fc1 = copy.deepcopy(layer.fc1)
        loss(twin, SOURCE, TARGET).backward()
        alone.append(twin.encoder.shared_layer.fc1.latent.grad)
    torch.testing.assert_close(whole, sum(alone), rtol=1e-4, atol=1e-5)


def test_latent_weights_start_as_large_as_fairseqs():
    sizes = {
        f"{stack}_{dim}": n
        for stack in ("encoder", "decoder")
        for dim, n in (("embed_dim", 64), ("ffn_embed_dim", 128))
    }
    ours = build_supermask(mask_trained_weights="16", mask_share="none", words=(200, 200), **sizes)
    theirs = build("L", "L", words=(200, 200), **sizes)
    parts = [f"{kind}_attn.{p}_proj" for kind in ("self", "encoder") for p in ("q", "k", "v", "out")]
    for name in [f"decoder.layers.0.{part}" for part in (*parts, "fc1", "fc2")] + ["encoder.embed_tokens"]:
        latent, weight = ours.get_submodule(name).latent[2:], theirs.get_submodule(name).weight[2:]
        assert latent.std().item() == pytest.approx(weight.std().item(), rel=0.05), name


@pytest.mark.parametrize("share", ["layer", "none"])
@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_folding_for_inference_changes_nothing_but_the_modules(kind, share):
    model = build_supermask(mask_trained_weights=kind, mask_share=share).eval()
    expected = logits(model, SOURCE, shift(TARGET))
    assert expected.std() > 0.1
    model.make_generation_fast_()
    torch.testing.assert_close(logits(model, SOURCE, shift(TARGET)), expected)
    assert not rounded_modules(model)
    assert (model.encoder.layers[0].fc1 is model.encoder.layers[2].fc1) == (share == "layer")


def test_the_table_names_rounded_and_shared_matrices():
    shared, own = (
        {row.place: row for row in build_supermask(mask_trained_weights="ternary", mask_share=share).slot_table.rows}
        for share in ("layer", "none")
    )
    assert shared.keys() == own.keys() | {"encoder.shared_layer", "decoder.shared_layer"}
    assert own["encoder.layers.2"].kind == "L Transformer, ternary"
    assert shared["encoder.layers.2"].kind == "L Transformer, matrices of shared_layer"
    assert shared["encoder.shared_layer"].kind == "one layer at 3 depths, ternary"
    assert shared["encoder.embed_tokens"].kind == "token embedding, ternary"
    # Two LayerNorms of 8 and 8; 4 x 8 x 8 + 2 x 8 x 12 in matrices. The computation is the same.
    assert shared["encoder.layers.2"].parameters == 32 and own["encoder.layers.2"].parameters == 32 + 448
    assert shared["encoder.shared_layer"].parameters == 448 and shared["encoder.shared_layer"].flops == 0
    assert shared["encoder.layers.2"].flops == own["encoder.layers.2"].flops == 2 * 448
    assert all(row.state == "trained" for row in own.values() if row.entries)


def test_freezing_one_depth_of_a_shared_layer_freezes_it_all():
    model = build_supermask(mask_trained_weights="sign", freeze="encoder.layers.1.ffn")
    frozen = {name for name, p in model.named_parameters() if not p.requires_grad}
    assert frozen == {"encoder.shared_layer.fc1.latent", "encoder.shared_layer.fc2.latent"}


@pytest.mark.parametrize("share", ["layer", "none"])
@torch.no_grad()
def test_layers_to_keep(share):
    whole = build_supermask(mask_trained_weights="16", mask_share=share, mask_seed=2).eval()
    options = {"encoder_layers_to_keep": "0,2", "decoder_layers_to_keep": "1"}
    pruned = build_supermask(mask_trained_weights="16", mask_share=share, mask_seed=2, **options).eval()
    pruned.load_state_dict(whole.state_dict())
    del whole.encoder.layers[1], whole.decoder.layers[0]
    assert logits(pruned, SOURCE, shift(TARGET)).equal(logits(whole, SOURCE, shift(TARGET)))


def without_buffers(found):
    return found.export_bytes("fp16") - sum(item.stored_bytes for item in found.with_roles("buffer"))


def test_bytes_by_hand():
    found = ledger(build_supermask(mask_trained_weights="4", mask_share="none"))
    # 2 bits: 448 / 4 in an encoder layer, (448 + 256) / 4 in a decoder layer, 20 x 8 / 4 in a table. Scales of 2 bytes: rows
    # of 4 x 8 + 12 + 8, with 4 x 8 more in the decoder, and 20. LayerNorms, 2 and 3 of 16 numbers.
    matrices = 3 * 112 + 2 * 176 + 2 * 40
    scales = 2 * (3 * 52 + 2 * 84 + 2 * 20)
    norms = 2 * 16 * (3 * 2 + 2 * 3)
    assert without_buffers(found) == matrices + scales + norms
    assert found.optimizer_bytes == 8 * (4 * matrices + norms // 2)
    shared = ledger(build_supermask(mask_trained_weights="ternary"))
    # the same number of bits, but one layer of each, and a scale for each of the 18 matrices
    assert without_buffers(shared) == 112 + 176 + 80 + 2 * 18 + norms


@pytest.mark.parametrize(
    "options, message",
    [
        ({"mask_keep_ratio": 0.3}, "--mask-keep-ratio 0.3: cannot be combined with --mask-trained-weights ternary"),
        ({"mask_coats": "0.3"}, "--mask-coats 0.3: cannot be combined with"),
        ({"mask_kind": "signed"}, "--mask-kind signed: cannot be combined with"),
        ({"mask_pin": 0.1}, "--mask-pin 0.1: cannot be combined with"),
        ({"mask_random": True}, "--mask-random: cannot be combined with"),
        ({"mask_scope": "row"}, "--mask-scope row: cannot be combined with"),
        ({"mask_scores": "value"}, "--mask-scores value: cannot be combined with"),
        ({"mask_keep_schedule": "10:0.5"}, "--mask-keep-schedule 10:0.5: cannot be combined with"),
        ({"mask_init_weights": "kaiming_uniform"}, "--mask-init-weights kaiming_uniform: cannot be combined with"),
        ({"regenerate_weights": True}, "--regenerate-weights: cannot be combined with"),
        (
            {"mask_trained_weights": "2"},
            "--mask-trained-weights '2': must be sign, ternary, or a number of levels from 3",
        ),
        ({"freeze": "att,ffn,emb,ln"}, "freezes every parameter"),
    ],
)
def test_refusals_name_the_flag(options, message):
    with pytest.raises(InputError) as error:
        build_supermask(**{"mask_trained_weights": "ternary", **options})
    assert message in str(error.value) and "\n" not in str(error.value)
