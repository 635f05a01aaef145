"""frozen_A: architecture A of fairseq with frozen components."""

import functools
import pickle
from argparse import Namespace

import pytest
import torch
from fairseq import models, options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

from fairseq_reservoir.checkpoint.dry_build import build_arch, build_config
from fairseq_reservoir.checkpoint.ledger import ledger
from fairseq_reservoir.errors import InputError
from fairseq_reservoir.freezing.description import BUFFER, DescribedInCheckpoint
from fairseq_reservoir.models.frozen.components import FrozenComponents
from fairseq_reservoir.plan import freeze_spec
from fairseq_reservoir.random_tensors.initialisers import MATRIX_INITIALISERS
from tests.support.building import dictionary, pad, sentences, shift

WIDTHS = "--encoder-embed-dim 8 --encoder-ffn-embed-dim 12 --encoder-layers 2 --encoder-attention-heads 2"
DECODER = "--decoder-ffn-embed-dim 12 --decoder-layers 2 --decoder-attention-heads 2"
CASES = {
    "transformer": ("translation", f"{WIDTHS} --decoder-embed-dim 8 {DECODER} --share-all-embeddings --dropout 0"),
    "transformer_lm": ("language_modeling", f"--decoder-embed-dim 8 {DECODER} --dropout 0"),
    "lightconv": (
        "translation",
        f"{WIDTHS} --encoder-conv-dim 8 --encoder-kernel-size-list [3,3] --decoder-embed-dim 8 --decoder-conv-dim 8 {DECODER} "
        "--decoder-kernel-size-list [3,3]",
    ),
    "roberta": ("masked_lm", f"{WIDTHS} --max-positions 32"),
}


def built(arch, flags=(), torch_seed=1):
    """Build a model from the command line, with dictionaries of 20 tokens, in evaluation mode."""
    task, sizes = CASES[arch.removeprefix("frozen_")]
    parser = options.get_training_parser(default_task=task)
    args = options.parse_args_and_arch(parser, ["no-data", "--arch", arch, *sizes.split(), *flags])
    torch.manual_seed(torch_seed)
    return build_config(convert_namespace_to_omegaconf(args).model, 20, 20, device="cpu").eval()


@functools.cache
def plain(arch):
    """fairseq's model, which no test changes."""
    return built(arch)


def logits(model):
    words = pad(sentences(5, 7, 4))
    inputs = (words, None, shift(words)) if hasattr(model, "encoder") and hasattr(model, "decoder") else (words,)
    return model(*inputs)[0]


def values(model):
    """State dict without our buffer."""
    return {name: value for name, value in model.state_dict().items() if name != BUFFER}


def trained(model):
    return {name for name, p in model.named_parameters() if p.requires_grad}


def test_every_architecture_of_fairseq_has_one_and_ours_have_none():
    frozen = {arch for arch, model in models.ARCH_MODEL_REGISTRY.items() if issubclass(model, FrozenComponents)}
    ours = {
        arch for arch, model in models.ARCH_MODEL_REGISTRY.items() if issubclass(model, DescribedInCheckpoint)
    } - frozen
    fairseqs = models.ARCH_MODEL_REGISTRY.keys() - ours - frozen
    assert frozen == {f"frozen_{arch}" for arch in fairseqs} and len(frozen) > 140
    assert "frozen_transformer_iwslt_de_en" in frozen and "reservoir_transformer_tiny" in ours
    for arch in fairseqs:
        assert issubclass(models.ARCH_MODEL_REGISTRY[f"frozen_{arch}"], models.ARCH_MODEL_REGISTRY[arch])


@pytest.mark.parametrize("arch", CASES)
def test_an_empty_spec_is_fairseqs_model_bit_for_bit(arch):
    theirs, ours = plain(arch), built(f"frozen_{arch}")
    assert type(ours) is models.MODEL_REGISTRY[f"frozen_{arch}"]
    expected, found = values(theirs), values(ours)
    assert list(expected) == list(found) and all(torch.equal(found[name], expected[name]) for name in expected)
    assert trained(ours) == trained(theirs) and ours.recipes == {}
    assert torch.equal(logits(ours), logits(theirs))


@pytest.mark.parametrize("arch", CASES)
def test_named_components_are_frozen_at_their_initial_values(arch):
    theirs, ours = plain(arch), built(f"frozen_{arch}", ["--freeze-except", "ln,emb"])
    expected = {name for name in trained(theirs) if freeze_spec.atom(name) in ("ln", "emb")}
    assert 0 < len(expected) < len(trained(theirs)) and trained(ours) == expected
    assert trained(ours) == {e.name for e in ours.slot_table.entries if e.trained}
    assert all(torch.equal(values(ours)[name], value) for name, value in values(theirs).items())


@pytest.mark.parametrize("init", [init for init in freeze_spec.FROZEN_INITS if init != "model"])
def test_frozen_tensors_are_drawn_from_seed_and_name(init):
    flags = ["--freeze", "encoder.att,decoder.ffn", "--frozen-init", init, "--reservoir-seed", "5"]
    theirs, ours = plain("transformer"), built("frozen_transformer", flags)
    other = built("frozen_transformer", flags, torch_seed=2)
    draw = MATRIX_INITIALISERS[freeze_spec.FROZEN_INITS[init]]
    frozen = {e.name for e in ours.slot_table.entries if not e.trained}
    # four matrices and biases in each of two layers, two in the two others
    assert len(frozen) == (8 + 4) * 2 == len(ours.recipes)
    for name in frozen:
        value = values(ours)[name]
        expected = (
            torch.zeros(len(value)) if name.endswith("bias") else torch.from_numpy(draw(5, name, tuple(value.shape)))
        )
        assert torch.equal(value, expected) and torch.equal(values(other)[name], value)
    assert all(torch.equal(values(ours)[name], value) for name, value in values(theirs).items() if name not in frozen)
    left_out = {item.name for item in ledger(ours).with_roles("random") if item.export_bytes() == 0}
    assert left_out == {name for name in frozen if init != "orthogonal" or name.endswith("bias")}


def test_frozen_embeddings_keep_their_padding_and_tied_ones_freeze_the_output():
    model = built("frozen_transformer", ["--freeze", "out", "--frozen-init", "signed_constant"])
    table = model.encoder.embed_tokens.weight
    assert not table.requires_grad and not table[1].any()
    # sqrt(1 / 8): rows of length 1
    assert torch.allclose(table[torch.arange(20) != 1].abs(), torch.tensor(8**-0.5))


def test_convolution_kernels_are_drawn_too():
    lightweight = ["--encoder-conv-type", "lightweight"]
    model = built("frozen_lightconv", ["--freeze", "encoder.other", "--frozen-init", "orthogonal", *lightweight])
    kernels = {name: p for name, p in model.named_parameters() if not p.requires_grad and name.endswith("conv.weight")}
    assert len(kernels) == 2 and set(kernels) <= model.recipes.keys()
    for kernel in kernels.values():  # (2 heads, 1, 3)
        assert torch.allclose(kernel[:, 0] @ kernel[:, 0].T, torch.eye(2), atol=1e-6)


def test_heads_that_tasks_add_are_frozen_and_drawn_by_out():
    model = built("frozen_roberta", ["--freeze", "out", "--frozen-init", "glorot", "--reservoir-seed", "3"])
    model.register_classification_head("topic", num_classes=2)
    head = [name for name, _ in model.named_parameters() if name.startswith("classification_heads.topic")]
    assert len(head) == 4 and not trained(model) & set(head) and set(head) <= model.recipes.keys()
    assert {e.name for e in model.slot_table.entries} == {name for name, _ in model.named_parameters()}
    other = built(
        "frozen_roberta", ["--freeze", "out", "--frozen-init", "glorot", "--reservoir-seed", "3"], torch_seed=2
    )
    other.register_classification_head("topic", num_classes=2)
    assert all(torch.equal(values(model)[name], values(other)[name]) for name in head)


def test_models_that_name_their_own_class_are_ours_too():
    model = build_arch("frozen_transformer_align", ["--freeze", "ffn"], 20, 20)
    assert type(model).__name__ == "FrozenTransformerAlignModel"
    assert 0 < model.slot_table.trained_parameters < model.slot_table.parameters


def test_recomputed_layers_above_frozen_embeddings_learn():
    gradients = []
    for recompute in ([], ["--checkpoint-activations"]):
        model = built("frozen_transformer", ["--freeze", "emb", *recompute]).train()
        logits(model).square().sum().backward()
        gradients.append({name: p.grad for name, p in model.named_parameters() if p.requires_grad})
    assert all(
        torch.allclose(gradients[1][name], gradient, rtol=1e-4, atol=1e-4) for name, gradient in gradients[0].items()
    )
    assert all(gradient.any() for name, gradient in gradients[0].items() if "k_proj.bias" not in name)


@pytest.mark.parametrize(
    "arch, flags, message",
    [
        ("transformer", "--freeze attention", "--freeze 'attention': unknown component 'attention'"),
        (
            "transformer",
            "--freeze layers.7.ffn",
            "--freeze 'layers.7.ffn': 'layers.7.ffn' matches nothing in this model",
        ),
        ("transformer_lm", "--freeze cross_att", "--freeze 'cross_att': 'cross_att' matches nothing"),
        (
            "transformer_lm",
            "--freeze decoder",
            "--freeze decoder freezes every parameter; leave at least one parameter to train",
        ),
        ("roberta", "--frozen-init zero", "--frozen-init zero: has no effect without --freeze or --freeze-except"),
        (
            "roberta",
            "--freeze att --frozen-init normal",
            "--frozen-init 'normal': choose from model, orthogonal, glorot,",
        ),
        (
            "transformer",
            "--freeze-except ffn --frozen-init diagonal",
            "--frozen-init diagonal: sets 12 of the 20 rows",
        ),
        ("transformer", "--freeze att --reservoir-seed x", "--reservoir-seed 'x': must be a whole number"),
    ],
)
def test_refusals_are_one_line(arch, flags, message):
    with pytest.raises(InputError) as refusal:
        built(f"frozen_{arch}", flags.split())
    assert str(refusal.value).startswith(message) and "\n" not in str(refusal.value)


def test_a_bare_namespace_has_the_defaults_and_the_seed():
    args = Namespace(arch="frozen_transformer_tiny", seed=7)
    models.ARCH_CONFIG_REGISTRY[args.arch](args)
    assert (args.freeze, args.freeze_except, args.frozen_init, args.reservoir_seed) == (None, None, "model", 7)
    entries = dictionary(20)
    task = Namespace(source_dictionary=entries, target_dictionary=entries)
    assert models.build_model(args, task).slot_table.seed == 7


# Presets that need more than the dictionaries of the three tasks: another package, files, or options of their task.
UNBUILT = (
    "hf_gpt2 model_parallel megatron pipeline multilingual from_pretrained wiki103 ulm speech lightconv_lm".split()
)
TEXT = {
    "translation": ("transformer", "bart", "mbart"),
    "language_modeling": ("transformer_lm",),
    "masked_lm": ("roberta",),
}


def text_presets(task):
    """The frozen_ architectures of fairseq's text Transformers for ``task``."""
    for arch in sorted(models.ARCH_MODEL_REGISTRY):
        name = arch.removeprefix("frozen_")
        language_model = name.startswith("transformer_lm")
        if (
            arch.startswith("frozen_")
            and name.startswith(TEXT[task])
            and language_model == (task == "language_modeling")
        ):
            if not any(word in name for word in UNBUILT) and name != "roberta_enc_dec":
                yield arch


@pytest.mark.slow
@pytest.mark.parametrize("task", TEXT)
def test_every_parameter_of_fairseqs_presets_has_one_atom(task):
    items = freeze_spec.parse(",".join(freeze_spec.ATOMS))
    presets = list(text_presets(task))
    assert len(presets) >= {"translation": 15, "language_modeling": 15, "masked_lm": 4}[task]
    for arch in presets:
        args = options.parse_args_and_arch(options.get_training_parser(default_task=task), ["no-data", "--arch", arch])
        model = build_config(convert_namespace_to_omegaconf(args).model, 1000, 1000)
        for name, _ in model.named_parameters():
            assert [item.text for item in items if item.matches(name)] == [freeze_spec.atom(name)], (arch, name)
            assert freeze_spec.atom(name) != "other", (arch, name)


@pytest.mark.parametrize("arch", ["transformer", "lightconv", "roberta", "transformer_lm"])
def test_models_can_be_pickled(arch):
    model = built(f"frozen_{arch}", ["--freeze", "ffn"])
    copied = pickle.loads(pickle.dumps(model))
    assert type(copied) is type(model) and logits(copied).equal(logits(model))
