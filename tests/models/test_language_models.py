"""Language models: presets, atoms, causality, cache, equality of only L with fairseq, embeddings, and errors."""

from argparse import Namespace

import pytest
import torch
from fairseq.models import ARCH_CONFIG_REGISTRY, MODEL_DATACLASS_REGISTRY
from fairseq.models.transformer_lm import TransformerLanguageModel, base_lm_architecture

from fairseq_reservoir.checkpoint import dry_build
from fairseq_reservoir.checkpoint.pretrained_embeddings import write_tables
from fairseq_reservoir.errors import InputError
from fairseq_reservoir.freezing.description import BUFFER
from fairseq_reservoir.masks.masked_weight import masked_modules
from fairseq_reservoir.models.reservoir import language_model as reservoir_transformer_lm
from fairseq_reservoir.models.supermask import language_model as supermask_one_layer_transformer_lm
from fairseq_reservoir.options.for_fairseq.namespaces import as_namespace
from fairseq_reservoir.plan.freeze_spec import atom
from fairseq_reservoir.plan.kinds import letters_where
from tests.support.building import build_lm, dictionary, pad, sentences
from tests.support.letters import LETTERS

MODULES = {
    "reservoir_transformer_lm": reservoir_transformer_lm,
    "supermask_one_layer_transformer_lm": supermask_one_layer_transformer_lm,
}
ARCHITECTURES = [f"{model}_{name}" for model, module in MODULES.items() for name in module.PRESETS]
TEXT = pad(sentences(10, 10, 10))
SUPERMASK = "supermask_one_layer_transformer_lm"
FORMS = {
    **{letter: {"plan": f"{letter}L{letter}", "reservoir_kernel_sizes": "3,7,15"} for letter in LETTERS["decoder"]},
    "masked": {"arch": SUPERMASK},
    "masked, nothing shared or tied": {
        "arch": SUPERMASK,
        "mask_share": "none",
        "share_decoder_input_output_embed": False,
    },
}


@pytest.fixture(params=FORMS)
def model(request, exact_softmax):
    return build_lm(**FORMS[request.param]).double().eval()


@torch.no_grad()
def test_later_words_have_no_influence_on_earlier_ones(model):
    other = TEXT.clone()
    other[:, 6:] = 7
    difference = (model(TEXT)[0] - model(other)[0]).abs().amax(dim=(0, 2))
    assert difference[:6].max() == 0 and difference[6:].min() > 0


@torch.no_grad()
def test_word_by_word_from_the_cache_equals_teacher_forcing(model):
    expected, state = model(TEXT)[0], {}
    for time in range(TEXT.size(1)):
        step = model.decoder(TEXT[:, : time + 1], incremental_state=state)[0][:, 0]
        assert (step - expected[:, time]).abs().max() < 1e-10


@pytest.mark.parametrize("letter", letters_where("decoder", sees_source=True, fairseqs=False))
def test_texts_longer_than_those_trained(letter, exact_softmax):
    """Trained on 10 tokens, evaluated on 40, at once and one by one. The limit is --max-target-positions, not the training length."""
    model = build_lm(
        plan=f"{letter}L{letter}", tokens_per_sample=10, max_target_positions=40, reservoir_kernel_sizes="3"
    ).double()
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    model(TEXT)[0].logsumexp(-1).sum().backward()
    optimizer.step()
    text, state = pad(sentences(40, 40, seed=2)), {}
    with torch.no_grad():
        expected = model.eval()(text)[0]
        assert (expected[:, :10] - model(text[:, :10])[0]).abs().max() < 1e-10
        for time in range(40):
            step = model.decoder(text[:, : time + 1], incremental_state=state)[0][:, 0]
            assert (step - expected[:, time]).abs().max() < 1e-10
    assert model.max_positions() == 40


# (width, feed-forward, layers, heads, tied)
SIZES = {
    "tiny": (64, 128, 2, 2, False),
    "study": (128, 512, 3, 4, True),
    "base": (512, 2048, 6, 8, True),
    "large": (1024, 4096, 12, 16, False),
    "enwik8": (512, 2048, 12, 8, True),  # Transformer-XL's recipe
}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_presets(architecture):
    args = Namespace()
    ARCH_CONFIG_REGISTRY[architecture](args)
    names = ["decoder_embed_dim", "decoder_ffn_embed_dim", "decoder_layers", "decoder_attention_heads"]
    sizes = (*(getattr(args, name) for name in names), args.share_decoder_input_output_embed)
    assert sizes == SIZES[architecture.rpartition("_")[2]] and args.dropout == 0.1 and args.decoder_normalize_before
    again = Namespace(**vars(args))
    ARCH_CONFIG_REGISTRY[architecture](again)
    assert again == args


def test_the_twin_of_a_plan_of_ls_is_transformer_lm_big():
    """``--arch transformer_lm`` of the same sizes is post-norm, and therefore lacks the last LayerNorm of 2 x 16 numbers."""
    sizes = "--decoder-layers 2 --decoder-embed-dim 16 --decoder-ffn-embed-dim 24 --decoder-attention-heads 2".split()
    ours, big, plain = (
        dry_build.build_arch(arch, sizes, 300)
        for arch in ("reservoir_transformer_lm", "transformer_lm_big", "transformer_lm")
    )
    shapes = [{name: tuple(p.shape) for name, p in model.named_parameters()} for model in (ours, big, plain)]
    assert shapes[0] == shapes[1]
    assert shapes[1].keys() - shapes[2].keys() == {"decoder.layer_norm.weight", "decoder.layer_norm.bias"}
    assert [model.decoder.layers[0].normalize_before for model in (ours, big, plain)] == [True, True, False]


@pytest.mark.parametrize("model", MODULES)
def test_the_command_lines_defaults_are_hydras(model):
    line = Namespace()
    ARCH_CONFIG_REGISTRY[model](line)
    hydra = vars(as_namespace(MODEL_DATACLASS_REGISTRY[model]())) | {"reservoir_decoder": "LLLLLL", "decoder_layers": 6}
    different = {
        name: (value, hydra[name]) for name, value in vars(line).items() if name in hydra and hydra[name] != value
    }
    # As in fairseq: dataclass and architecture function differ. The option has no effect without BASE layers.
    assert len(vars(line)) > 40 and different == {"base_shuffle": (False, 1)}


@pytest.mark.parametrize(
    "options", [{}, {"decoder_embed_path": None, "decoder_learned_pos": True}, "adaptive"], ids=str
)
@pytest.mark.parametrize("tied", [True, False])
def test_only_l_is_fairseqs_transformer_lm(tied, options):
    sizes = {"decoder_embed_dim": 8, "decoder_ffn_embed_dim": 12, "decoder_attention_heads": 2, "decoder_layers": 2}
    if options == "adaptive":
        options = {"adaptive_input": True, "adaptive_input_cutoff": "9", "adaptive_input_factor": 2}
        options |= {"adaptive_softmax_cutoff": "9", "adaptive_softmax_factor": 2, "tie_adaptive_weights": tied}
        tied = False
    given = {**sizes, **options, "dropout": 0.1, "share_decoder_input_output_embed": tied, "tokens_per_sample": 30}
    fairseqs = Namespace(**given)
    base_lm_architecture(fairseqs)
    entries = dictionary(20)
    torch.manual_seed(5)
    task = Namespace(source_dictionary=entries, target_dictionary=entries)
    theirs = TransformerLanguageModel.build_model(fairseqs, task)
    ours = build_lm(torch_seed=5, **given)
    # fairseq's _float_tensor only records the device and is never written.
    states = [
        {n: t for n, t in m.state_dict().items() if n != BUFFER and "_float_tensor" not in n} for m in (theirs, ours)
    ]
    assert list(states[0]) == list(states[1])
    assert all(tensor.equal(states[1][name]) for name, tensor in states[0].items())
    torch.manual_seed(6)
    expected = theirs(TEXT)[0]
    torch.manual_seed(6)
    assert ours(TEXT)[0].equal(expected)


@pytest.mark.parametrize("how, trained", [("masked", {"scores"}), ("trained", {"weight"}), ("frozen", set())])
@pytest.mark.parametrize("tied", [True, False])
def test_embeddings_of_a_masked_model(how, trained, tied):
    model = build_lm(SUPERMASK, mask_embeddings=how, share_decoder_input_output_embed=tied)
    parts = ["embed_tokens"] if tied else ["embed_tokens", "output_projection"]
    names = {n for n, p in model.named_parameters() if p.requires_grad and ("embed_" in n or "output_" in n)}
    assert names == {f"decoder.{part}.{name}" for part in parts for name in trained}
    assert model.decoder.embed_tokens.weight[1].abs().max() == 0
    again = build_lm(SUPERMASK, mask_embeddings=how, share_decoder_input_output_embed=tied, torch_seed=9)
    for name, tensor in model.state_dict().items():
        assert tensor.equal(again.state_dict()[name]) or how == "trained", name


def test_one_random_layer_under_a_mask_per_depth():
    model = build_lm(SUPERMASK, decoder_layers=4)
    layers = model.decoder.layers
    assert len({layer.fc1.frozen_weight.data_ptr() for layer in layers}) == 1 and layers[0].encoder_attn is None
    for name, module in masked_modules(model).items():
        assert int(module.mask.sum()) == module.mask.numel() // 2, name
    # q k v o, fc1 and fc2, and the embedding that is tied to the output projection
    assert len(masked_modules(model)) == 4 * 6 + 1
    shared = [entry for entry in model.slot_table.entries if entry.seen_by]
    assert sum(entry.size for entry in shared) == 4 * 8 * 8 + 2 * 8 * 12 + 20 * 8


@pytest.mark.parametrize(
    "arch, how",
    [("reservoir_transformer_lm", {}), *((SUPERMASK, {"mask_embeddings": how}) for how in ("trained", "frozen"))],
)
def test_word_vectors_from_a_file(tmp_path, arch, how):
    vectors = torch.randn(20, 8)
    write_tables({tmp_path / "vectors.txt": (dictionary(20), vectors)})
    weight = build_lm(arch, decoder_embed_path=str(tmp_path / "vectors.txt"), **how).decoder.embed_tokens.weight
    assert weight[4:].equal(vectors[4:]) and weight.requires_grad == (how.get("mask_embeddings") != "frozen")


def test_word_vectors_under_a_mask_are_scaled_by_root_two(tmp_path):
    vectors = torch.randn(20, 8)
    write_tables({tmp_path / "vectors.txt": (dictionary(20), vectors)})
    embedding = build_lm(SUPERMASK, decoder_embed_path=str(tmp_path / "vectors.txt")).decoder.embed_tokens
    assert torch.allclose(embedding.frozen_weight[4:], vectors[4:] * 2**0.5)
    with pytest.raises(InputError, match="--decoder-embed-path .*: its vectors have 8 numbers, but the model needs 4"):
        build_lm(SUPERMASK, decoder_embed_path=str(tmp_path / "vectors.txt"), decoder_embed_dim=4)


@pytest.mark.parametrize("arch, name", [("reservoir_transformer_lm", "reservoir_seed"), (SUPERMASK, "mask_seed")])
def test_the_seed_of_a_bare_namespace(arch, name):
    options = {"plan": "LT"} if arch == "reservoir_transformer_lm" else {}
    assert build_lm(arch, seed=7, **options).slot_table.seed == 7
    assert build_lm(arch, seed=7, **{name: 3}, **options).slot_table.seed == 3


ADAPTIVE = {"adaptive_input": True, "adaptive_input_cutoff": "9"}


@pytest.mark.parametrize(
    "arch, options, message",
    [
        ("reservoir_transformer_lm", {"plan": "LM"}, "--reservoir-decoder 'LM': M is not allowed in a decoder: its Fourier transform"),
        ("reservoir_transformer_lm", {"plan": "LFs", "scale_fc": True}, "--scale-fc: not supported in s layers; remove the flag"),
        ("reservoir_transformer_lm", {"plan": "TT", "freeze": "emb,out,ln"}, "--freeze emb,out,ln freezes every parameter (decoder TT)"),
        ("reservoir_transformer_lm", {"freeze": "encoder"}, "--freeze 'encoder': 'encoder' matches nothing in this model"),
        (
            "reservoir_transformer_lm",
            {"reservoir_type": "ffn", "reservoir_placement": "top"},
            "--reservoir-placement top: has no effect without --reservoir-decoder-count",
        ),
        ("reservoir_transformer_lm", {"character_embeddings": True}, "--character-embeddings: not supported in models with a layer plan"),
        ("reservoir_transformer_lm", {"adaptive_input": True}, "--adaptive-input: needs --adaptive-input-cutoff"),
        (
            "reservoir_transformer_lm",
            {**ADAPTIVE, "tie_adaptive_weights": True},
            "--tie-adaptive-weights: needs --adaptive-input, and --adaptive-input-cutoff (9) must equal "
            "--adaptive-softmax-cutoff (None)",
        ),
        (
            "reservoir_transformer_lm",
            {**ADAPTIVE, "share_decoder_input_output_embed": True},
            "--adaptive-input: makes several embedding tables, but the output",
        ),
        ("reservoir_transformer_lm", {**ADAPTIVE, "adaptive_input_cutoff": "9,5"}, "--adaptive-input-cutoff 9,5: must be ascending whole"),
        ("reservoir_transformer_lm", {**ADAPTIVE, "decoder_embed_path": "v.txt"}, "--decoder-embed-path: the file has one table"),
        (
            "reservoir_transformer_lm",
            {"decoder_input_dim": 4, "share_decoder_input_output_embed": True},
            "--share-decoder-input-output-embed: needs equal values of --decoder-input-dim (4)",
        ),
        (
            SUPERMASK,
            {"character_embeddings": True},
            "--character-embeddings: not supported in models with a layer plan or masks; remove the flag",
        ),
        (SUPERMASK, {"base_layers": 1}, "--base-layers 1: not supported in the models of this package; remove the flag"),
        (SUPERMASK, ADAPTIVE, "--adaptive-input: not supported with masked or rounded embeddings; use --mask-embeddings trained or frozen"),
        (SUPERMASK, {**ADAPTIVE, "mask_embeddings": "8"}, "--adaptive-input: not supported with masked or rounded embeddings"),
        (SUPERMASK, {"adaptive_softmax_cutoff": "9"}, "--adaptive-softmax-cutoff: not supported with masked or rounded embeddings"),
        (SUPERMASK, {"mask_keep_ratio": 0.0}, "--mask-keep-ratio 0: must be greater than 0 and at most 1"),
    ],
)  # fmt: skip
def test_refusals_name_the_flag(arch, options, message):
    with pytest.raises(InputError) as error:
        build_lm(arch, **options)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_a_plan_of_feed_forward_layers_needs_no_source():
    assert [slot.kind for slot in build_lm(plan="Ff").slot_table.rows if "layers" in slot.place] == [
        "F feed-forward",
        "f feed-forward",
    ]


@pytest.mark.parametrize("flag", ["scale_attn", "scale_fc", "scale_heads", "scale_resids"])
def test_normformers_gains_are_frozen_and_trained_with_the_layernorms(flag):
    """Flags of fairseq's transformer_lm. Their names in the layer are attn_ln, ffn_layernorm, c_attn and w_resid."""
    added = {"scale_attn": "attn_ln", "scale_fc": "ffn_layernorm", "scale_heads": "c_attn", "scale_resids": "w_resid"}[
        flag
    ]

    def gains(**options):
        """Whether each gain is trained, by the number of its layer."""
        model = build_lm(**{flag: True}, **options)
        assert model(TEXT)[0].isfinite().all()
        found = {n: p for n, p in model.named_parameters() if f".{added}" in n}
        assert all(
            atom(n) == "ln" and p.detach().eq(0.0 if n.endswith("bias") else 1.0).all() for n, p in found.items()
        )
        by_layer = {(n.split(".")[2], p.requires_grad) for n, p in found.items()}
        assert len(by_layer) == len(model.decoder.layers)
        return dict(sorted(by_layer))

    assert gains(plan="TLT") == {"0": False, "1": True, "2": False}
    assert gains(plan="TL", reservoir_train_layernorm=True) == {"0": True, "1": True}
    assert gains(plan="LL", freeze="ln") == {"0": False, "1": False}
    assert gains(arch=SUPERMASK) == {"0": True, "1": True}
    assert gains(arch=SUPERMASK, mask_layernorm="plain") == {"0": False, "1": False}
    trained = {
        n for n, p in build_lm(SUPERMASK, mask_layernorm="plain", **{flag: True}).named_parameters() if p.requires_grad
    }
    assert trained and all(name.endswith(".scores") for name in trained)
