"""Freeze specs in every model of the plugin: each component freezes exactly its parameters, and invalid specs are refused."""

from argparse import Namespace
from functools import partial

import pytest
import torch
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY
from torch.nn import functional

from fairseq_reservoir.errors import InputError
from fairseq_reservoir.freezing.description import Resumed, resuming
from fairseq_reservoir.options.for_fairseq.namespaces import fill_defaults
from fairseq_reservoir.plan.freeze_spec import COMPONENTS, GROUPS, atom, is_bias
from tests.support.building import (
    SIZES,
    build,
    build_lm,
    build_roberta,
    build_supermask,
    dictionary,
    pad,
    sentences,
    shift,
)

UNTIED = {"share_decoder_input_output_embed": False}


def build_frozen(arch, **options):
    """Build ``frozen_<arch>``: 8 / 12 dimensions, 2 heads, 2 layers, no tied tensors, no dropout."""
    sizes = SIZES | {"decoder_embed_dim": 8, "decoder_ffn_embed_dim": 12, "max_positions": 32, "weight_softmax": True}
    for stack in ("encoder", "decoder"):
        stack_sizes = {"layers": 2, "conv_dim": 8, "conv_type": "dynamic", "kernel_size_list": [3, 3]}
        sizes |= {f"{stack}_{name}": value for name, value in stack_sizes.items()}
    args = Namespace(
        arch=f"frozen_{arch}", seed=1, untie_weights_roberta=True, attention_dropout=0.0, **sizes, **options
    )
    ARCH_CONFIG_REGISTRY[args.arch](args)
    if args.arch in MODEL_DATACLASS_REGISTRY:
        fill_defaults(args, MODEL_DATACLASS_REGISTRY[args.arch])
    entries = dictionary(20)
    return ARCH_MODEL_REGISTRY[args.arch].build_model(
        args, Namespace(source_dictionary=entries, target_dictionary=entries)
    )


# No tensors are tied, because a tied one belongs to two components. test_components.py tests all layer kinds of reservoir_transformer.
MODELS = {
    "reservoir_transformer": partial(build, "LM", "LS"),
    "reservoir_transformer_lm": partial(build_lm, plan="LsS", **UNTIED),
    "reservoir_roberta": partial(
        build_roberta, "reservoir_roberta", reservoir_encoder="LMsS", untie_weights_roberta=True
    ),
    "supermask_one_layer_transformer": partial(build_supermask, **UNTIED),
    "supermask_one_layer_transformer_lm": partial(build_lm, "supermask_one_layer_transformer_lm", **UNTIED),
    "supermask_one_layer_roberta": partial(build_roberta, mask_embeddings="trained", untie_weights_roberta=True),
    **{
        f"frozen_{arch}": partial(build_frozen, arch)
        for arch in ("transformer", "transformer_lm", "lightconv", "roberta")
    },
}


def logits_of(model, tokens, has_head):
    """Return the logits of all positions, and those of the classification head if there is one."""
    if hasattr(model, "decoder"):
        source = (tokens, None) if hasattr(model, "encoder") else ()
        return [model(*source, shift(tokens))[0]]
    return [model(tokens)[0], *([model(tokens, classification_head_name="mood")[0]] if has_head else [])]


def with_head(model):
    """Return the model, with a classification head if it supports one, and whether it does."""
    has_head = hasattr(model, "register_classification_head")
    if has_head:
        model.register_classification_head("mood", 2)
    return model, has_head


def train_two_updates(build_model_with, **options):
    """Build a model with ``with_head``. Return it after two updates, and its initial tensors."""
    model, has_head = with_head(build_model_with(**options).train())
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    # Like fairseq's trainer, leave frozen parameters out of the optimizer: weight decay would change them.
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.01, weight_decay=0.1)
    for step in (1, 2):
        tokens = pad(sentences(6, 4, 7, seed=step))
        model.set_num_updates(step)
        optimizer.zero_grad()
        sum(
            functional.log_softmax(scores, -1)[..., 1].sum() for scores in logits_of(model, tokens, has_head)
        ).backward()
        optimizer.step()
    return model, before


def unchanged(model, before):
    """Return the names of unchanged parameters, except trained parameters that never get a gradient.

    The gradient of a key bias is 0 except for rounding. lightconv does not use its ``conv_bias``.
    """
    equal = {n for n, p in model.named_parameters() if torch.equal(p, before[n])}
    without_gradient = {name for name in equal if name.endswith(("k_proj.bias", "conv_bias"))}
    return equal - {name for name in without_gradient if model.get_parameter(name).requires_grad}


# Components whose models are trained in the default run: tables, a group, and parts of several modules. The flags of the others are
# compared. test_components.py trains a model with each of them.
TRAINED = ("emb", "att", "ln", "bias")


@pytest.mark.parametrize("components", [TRAINED, pytest.param(COMPONENTS, marks=pytest.mark.slow)], ids=["some", "all"])
@pytest.mark.parametrize("arch", MODELS)
def test_each_component_freezes_exactly_its_parameters(arch, components):
    plain, before = train_two_updates(MODELS[arch])
    random = {entry.name for entry in plain.slot_table.entries if not entry.trained and not entry.seen_by}
    assert unchanged(plain, before) == random
    names = [name for name, _ in plain.named_parameters()]
    chosen = {
        c: {n for n in names if (is_bias(n) if c == "bias" else atom(n) in GROUPS.get(c, {c}))} for c in COMPONENTS
    }
    for component, expected in chosen.items():
        if not expected:
            with pytest.raises(InputError, match=f"'{component}' matches nothing in this model; its components: "):
                MODELS[arch](freeze=component)
            continue
        if component not in components:
            model, _ = with_head(MODELS[arch](freeze=component))
            assert {name for name, p in model.named_parameters() if not p.requires_grad} == expected | random, component
            continue
        model, before = train_two_updates(MODELS[arch], freeze=component)
        assert unchanged(model, before) == expected | random, component
        buffers = {name: b for name, b in model.named_buffers() if "random_layer" in name or "frozen" in name}
        assert all(torch.equal(tensor, before[name]) for name, tensor in buffers.items() if name in before)
    assert sum(map(bool, chosen.values())) >= 8


@pytest.mark.parametrize("arch", MODELS)
def test_a_checkpoint_resumes_only_with_its_own_spec(arch):
    def load(spec, tensors, resumes):
        token = resuming.set(Resumed("checkpoints/checkpoint_last.pt", "checkpoints") if resumes else None)
        try:
            model = MODELS[arch](freeze=spec)
            model.load_state_dict(dict(tensors))
            return model.state_dict()
        finally:
            resuming.reset(token)

    stored = MODELS[arch](freeze="ln").state_dict()
    load("ln", stored, resumes=True)
    message = (
        "--freeze fc1: the checkpoint was trained with ln; give ln, add --reset-optimizer, or start a new training"
    )
    with pytest.raises(InputError, match=message):
        load("fc1", stored, resumes=True)
    # --reset-optimizer and --finetune-from-model allow another spec. The new checkpoint then resumes only with that spec.
    changed = load("fc1", stored, resumes=False)
    load("fc1", changed, resumes=True)
    with pytest.raises(InputError, match="--freeze ln: the checkpoint was trained with fc1"):
        load("ln", changed, resumes=True)


@pytest.mark.parametrize("arch", MODELS)
def test_freezing_everything_is_refused(arch):
    components = {entry.atom for entry in MODELS[arch]().slot_table.entries if entry.trained}
    spec = ",".join(sorted(components))
    if "roberta" in arch:  # its task may add a trained head; without one the trainer refuses the spec (test_roberta.py)
        assert MODELS[arch](freeze=spec).slot_table.trained_parameters == 0
    else:
        with pytest.raises(InputError, match="freezes every parameter"):
            MODELS[arch](freeze=spec)
    with pytest.raises(InputError, match="'layers.9' matches nothing in this model"):
        MODELS[arch](freeze="layers.9")
