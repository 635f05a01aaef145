"""RoBERTa models: presets, frozen tensors and their draws, tied masks, padding, equality of only L with fairseq, vectors."""

from argparse import Namespace

import pytest
import torch
from fairseq.models import ARCH_CONFIG_REGISTRY

from fairseq_reservoir.checkpoint import dry_build, meta_checkpoint
from fairseq_reservoir.checkpoint.pretrained_embeddings import building_for_a_checkpoint, write_tables
from fairseq_reservoir.errors import InputError
from fairseq_reservoir.freezing.description import BUFFER
from fairseq_reservoir.masks.masked_weight import masked_modules
from fairseq_reservoir.models.reservoir import roberta as reservoir_roberta
from fairseq_reservoir.models.supermask import roberta as supermask_one_layer_roberta
from tests.support.building import build_roberta, dictionary, pad, sentences
from tests.support.letters import LETTERS

SUPERMASK, RESERVOIR = "supermask_one_layer_roberta", "reservoir_roberta"
PRESETS = {SUPERMASK: supermask_one_layer_roberta.PRESETS, RESERVOIR: reservoir_roberta.PRESETS}
ROWS = sentences(6, 9, 1, 4)
STACK = "encoder.sentence_encoder"


def trained(model):
    return {name for name, parameter in model.named_parameters() if parameter.requires_grad}


@pytest.mark.parametrize("arch", PRESETS)
@pytest.mark.parametrize(
    "preset, sizes",
    [
        ("tiny", (64, 128, 2, 2)),
        ("study", (128, 512, 3, 4)),
        ("base", (768, 3072, 12, 12)),
        ("large", (1024, 4096, 24, 16)),
    ],
)
def test_presets(arch, preset, sizes):
    model = dry_build.build_arch(f"{arch}_{preset}", [], 300)
    options = model.args
    assert set(PRESETS[arch]) == {"tiny", "study", "base", "large"}
    assert (
        options.encoder_embed_dim,
        options.encoder_ffn_embed_dim,
        options.encoder_layers,
        options.encoder_attention_heads,
    ) == sizes
    if preset in ("base", "large"):
        args = Namespace(encoder_layerdrop=0.0)
        ARCH_CONFIG_REGISTRY[f"roberta_{preset}"](args)
        # the number of positions follows --tokens-per-sample
        assert {name for name, value in vars(args).items() if getattr(options, name) != value} == {
            "max_source_positions"
        }
    model.register_classification_head("mood", 3)
    table = model.slot_table
    assert [entry.name for entry in table.entries if entry.atom == "other" and not entry.seen_by] == []
    # dense 1,024 x 1,024 and 3 x 1,024, with biases, in the large one
    width = sizes[0]
    assert (
        next(r for r in table.rows if r.place == "classification_heads.mood").trained_parameters
        == width * width + width + 3 * width + 3
    )
    assert [row.place for row in table.rows if ".layers." in row.place] == [
        f"encoder.layers.{i}" for i in range(sizes[2])
    ]


def test_only_l_is_fairseqs_roberta_bit_for_bit():
    tokens = pad(ROWS)
    ours, fairseqs = (
        build_roberta(arch, **plan) for arch, plan in ((RESERVOIR, {"reservoir_encoder": "LLL"}), ("roberta", {}))
    )
    assert ours.state_dict().keys() ^ fairseqs.state_dict().keys() == {BUFFER}
    assert torch.equal(ours(tokens)[0], fairseqs(tokens)[0])
    for model in (ours, fairseqs):
        torch.manual_seed(3)
        model.register_classification_head("mood", 2)
    answers = [model(tokens, classification_head_name="mood")[0] for model in (ours, fairseqs)]
    assert torch.equal(*answers)


@pytest.mark.parametrize(
    "arch, options",
    [
        (SUPERMASK, {}),
        (SUPERMASK, {"mask_share": "none", "mask_init_weights": "paper_code"}),
        (SUPERMASK, {"mask_embeddings": "frozen"}),
        (SUPERMASK, {"mask_embeddings": "trained"}),
        (SUPERMASK, {"untie_weights_roberta": True}),
        (RESERVOIR, {"reservoir_encoder": "LTFGCSL"}),
    ],
    ids=str,
)
def test_fairseqs_initialisation_does_not_overwrite_drawn_tensors(arch, options):
    model = build_roberta(arch, **options)
    tensors = model.state_dict()
    names = {name for name in tensors if name.endswith("frozen_weight") or ".random_layer." in name}
    names |= {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
    assert model.recipes.keys() == names and names
    for name, recipe in model.recipes.items():
        assert torch.equal(recipe.draw(1), tensors[name]), name
        assert "sentence_encoder" not in recipe.name
    other = build_roberta(arch, torch_seed=9, **options).state_dict()
    assert all(torch.equal(other[name], tensors[name]) for name in names)


@pytest.mark.parametrize("how", ["masked", "frozen"])
@pytest.mark.parametrize("share", ["layer", "none"])
def test_the_papers_code_ends_with_init_bert_params(how, share):
    """fairseq's function draws every matrix, the token vectors and the positions from N(0, 0.02^2), and sets padding to 0."""
    model = build_roberta(
        words=300, encoder_embed_dim=32, encoder_ffn_embed_dim=64, max_positions=200, mask_init_weights="paper_code",
        mask_keep_ratio=0.25, mask_share=share, mask_embeddings=how,
    )  # fmt: skip
    tensors, kinds = model.state_dict(), ("q_proj", "out_proj", "fc1", "fc2", "embed_tokens", "embed_positions")
    for name, recipe in model.recipes.items():
        values = tensors[name][2:]
        # 4 standard errors of the standard deviation of this many draws
        assert float(values.std()) == pytest.approx(0.02, rel=4 / (2 * values.numel()) ** 0.5), name
        assert abs(float(values.mean())) < 4 * 0.02 / values.numel() ** 0.5, name
        assert recipe.name != "encoder.embed_positions" or not tensors[name][1].any()
    assert all(any(kind in recipe.name for recipe in model.recipes.values()) for kind in kinds)


def test_a_checkpoint_of_before_that_is_exported_by_its_own_recipes(tmp_path):
    """Before version 0.2.0 attention was Xavier uniform, other matrices Kaiming uniform, and positions +-1 / sqrt(width)."""
    size, bounds = 8, {"self_attn_q_proj": (6 / 16) ** 0.5 / 2**0.5, "self_attn_out_proj": (6 / 16) ** 0.5}
    bounds |= {"fc1": (6 / 8) ** 0.5, "fc2": (6 / 12) ** 0.5, "embed_tokens": (6 / 8) ** 0.5}
    model = build_roberta(mask_init_weights="paper_code")
    old = {name: recipe.draw(1) for name, recipe in model.earlier_recipes.items()}
    assert old.keys() == model.recipes.keys()
    for name, tensor in old.items():
        part = next((part for part in bounds if part in name), None)
        if "positions" in name:
            assert tensor[2:].abs().unique().tolist() == pytest.approx([size**-0.5])
        elif part:
            assert 0.8 * bounds[part] < float(tensor.abs().max()) <= bounds[part] * 1.000001, name
    meta_checkpoint._take_earlier_recipes(model, old)
    assert model.recipes == model.earlier_recipes
    today = build_roberta(mask_init_weights="paper_code")
    meta_checkpoint._take_earlier_recipes(today, today.state_dict())
    assert all(today.recipes[name] != model.recipes[name] for name in old)


def test_trained_parameters():
    head = {f"encoder.lm_head.{name}" for name in ("bias", "dense.weight", "dense.bias")}
    norms = {"encoder.lm_head.layer_norm", f"{STACK}.layernorm_embedding"}
    norms |= {f"{STACK}.layers.{i}.{norm}" for i in range(3) for norm in ("self_attn_layer_norm", "final_layer_norm")}
    norms = {f"{norm}.{part}" for norm in norms for part in ("weight", "bias")}
    plain, affine = (build_roberta(mask_layernorm=kind) for kind in ("plain", "affine"))
    scores = {f"{name}.scores" for name in masked_modules(plain)}
    assert len(scores) == 3 * 6 + 1 and trained(plain) == scores | head and trained(affine) == scores | head | norms
    table = {f"{STACK}.embed_tokens.weight", f"{STACK}.embed_positions.weight"}
    layers = {name for name in scores if ".layers." in name}
    assert trained(build_roberta(mask_layernorm="plain", mask_embeddings="trained")) == layers | head | table
    assert trained(build_roberta(mask_layernorm="plain", mask_embeddings="frozen")) == layers | head
    affine.register_classification_head("mood", 2)
    assert {n for n in trained(affine) if n.startswith("classification_heads.mood.")} == {
        f"classification_heads.mood.{part}.{tensor}" for part in ("dense", "out_proj") for tensor in ("weight", "bias")
    }


def test_specs_speak_of_encoder_layers_and_out():
    model = build_roberta(RESERVOIR, reservoir_encoder="LLL", freeze="layers.1,out,pos")
    model.register_classification_head("mood", 2)
    frozen = {name for name, p in model.named_parameters() if not p.requires_grad}
    expected = {
        n
        for n, _ in model.named_parameters()
        if n.startswith((f"{STACK}.layers.1.", f"{STACK}.embed_positions", "classification_heads"))
    }
    expected |= {f"encoder.lm_head.{name}" for name in ("bias", "dense.weight", "dense.bias")}
    # the head's last matrix is that of the token embedding; both names select it
    assert frozen == expected | {f"{STACK}.embed_tokens.weight"}


@pytest.mark.parametrize("tied", [True, False])
def test_the_head_follows_its_mask(tied):
    model, tokens = build_roberta(untie_weights_roberta=not tied), pad(ROWS)
    embedding, head = model.encoder.sentence_encoder.embed_tokens, model.encoder.lm_head
    projection = embedding if tied else head.projection
    assert (head.projection.weight.shape, "weight" in head._parameters) == ((20, 8), False)
    model.set_num_updates(1)
    features = model(tokens, features_only=True)[0]
    x = head.layer_norm(torch.nn.functional.gelu(head.dense(features)))
    expected = x @ (projection.frozen_weight * projection.mask).t() + head.bias
    assert torch.allclose(model(tokens)[0], expected, atol=1e-5)
    with torch.no_grad():
        projection.scores.copy_(1 / projection.scores)
    model.set_num_updates(2)
    masked = projection.frozen_weight * projection.mask
    assert torch.equal(head.weight, masked) and not torch.allclose(x @ masked.t() + head.bias, expected, atol=1e-3)
    model(tokens)[0].sum().backward()
    assert projection.scores.grad.abs().max() > 0


@torch.no_grad()
def test_folding_for_inference():
    model, tokens = build_roberta().eval(), pad(ROWS)
    expected = model(tokens)[0]
    model.make_generation_fast_()
    assert not masked_modules(model) and torch.allclose(model(tokens)[0], expected, atol=1e-5)
    assert model.encoder.lm_head.projection.embedding is model.encoder.sentence_encoder.embed_tokens


@torch.no_grad()
@pytest.mark.parametrize("form", ["masked", *LETTERS["encoder"]])
def test_a_sentence_does_not_depend_on_its_batch(form, exact_softmax):
    plan = (
        {"arch": RESERVOIR, "reservoir_encoder": f"L{form}", "reservoir_kernel_sizes": "3,7"}
        if form != "masked"
        else {}
    )
    model = build_roberta(**plan).double().eval()
    model.register_classification_head("mood", 2)
    model.double()
    words, moods = model(pad(ROWS))[0], model(pad(ROWS), classification_head_name="mood")[0]
    for i, row in enumerate(ROWS):
        assert (model(row[None])[0][0] - words[i, : len(row)]).abs().max() < 1e-10
        assert (model(row[None], classification_head_name="mood")[0] - moods[i]).abs().max() < 1e-10


@pytest.mark.parametrize("how", ["masked", "frozen", "trained"])
def test_vectors_from_a_file_of_words(tmp_path, how):
    vectors = torch.randn(20, 8)
    write_tables({tmp_path / "v": (dictionary(20), vectors)})
    model = build_roberta(mask_embeddings=how, encoder_embed_path=str(tmp_path / "v"))
    embedding = model.encoder.sentence_encoder.embed_tokens
    held = embedding.frozen_weight if how == "masked" else embedding.weight
    # of 19 tokens; the last entry is <mask>. With a keep ratio of 0.5, scaled by the square root of 2.
    assert torch.allclose(held[2:19], vectors[2:19] * (2**0.5 if how == "masked" else 1)) and held[1].abs().max() == 0
    assert not any("embed_tokens" in name for name in model.recipes)


def test_files_of_vectors_are_not_read_for_a_checkpoint():
    for options in ({"encoder_embed_path": "gone"}, {"mask_embeddings_from": "gone"}):
        with pytest.raises(InputError, match="gone: "):
            build_roberta(**options)
        with building_for_a_checkpoint():
            assert not any("embed_tokens" in name for name in build_roberta(**options).recipes)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"mask_keep_ratio": 0.0}, "--mask-keep-ratio 0: must be greater than 0"),
        ({"arch": RESERVOIR, "reservoir_encoder": "LX"}, "--reservoir-encoder 'LX': unknown letter 'X'"),
        ({"arch": RESERVOIR, "reservoir_encoder": "L", "freeze_except": "layers.4.ffn"}, "its layers: encoder 0-0"),
        (
            {"mask_embeddings_from": "a", "encoder_embed_path": "b"},
            "--mask-embeddings-from a and --encoder-embed-path b: give only one of them",
        ),
    ],
)
def test_refusals(options, message):
    with pytest.raises(InputError) as error:
        build_roberta(**options)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_layers_to_keep_of_a_plan():
    """fairseq replaces the depth by the number of kept layers when it builds the encoder. The kept layers of LFL are needed afterwards."""
    model = build_roberta("reservoir_roberta", reservoir_encoder="LFL", encoder_layers_to_keep="0,2")
    places = [row.kind for row in model.slot_table.rows if row.place.startswith("encoder.layers")]
    assert places == ["L Transformer", "L Transformer"] and len(model.encoder.sentence_encoder.layers) == 2
