"""Freeze specs in every model of the plugin: what each component's name freezes stays, the rest moves; what is refused."""

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


def frozen(arch, **options):
    """fairseq's model ``arch`` with a freeze spec: 8 / 12 dimensions, 2 heads, 2 layers, nothing tied, no dropout."""
    sizes = SIZES | {"decoder_embed_dim": 8, "decoder_ffn_embed_dim": 12, "max_positions": 32, "weight_softmax": True}
    for stack in ("encoder", "decoder"):
        of_stack = {"layers": 2, "conv_dim": 8, "conv_type": "dynamic", "kernel_size_list": [3, 3]}
        sizes |= {f"{stack}_{name}": value for name, value in of_stack.items()}
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


# Without tied tensors, which answer to two names. test_components.py has reservoir_transformer with every kind of layer.
MODELS = {
    "reservoir_transformer": partial(build, "LM", "LS"),
    "reservoir_transformer_lm": partial(build_lm, plan="LsS", **UNTIED),
    "reservoir_roberta": partial(
        build_roberta, "reservoir_roberta", reservoir_encoder="LMsS", untie_weights_roberta=True
    ),
    "supermask_one_layer_transformer": partial(build_supermask, **UNTIED),
    "supermask_one_layer_transformer_lm": partial(build_lm, "supermask_one_layer_transformer_lm", **UNTIED),
    "supermask_one_layer_roberta": partial(build_roberta, mask_embeddings="trained", untie_weights_roberta=True),
    **{f"frozen_{arch}": partial(frozen, arch) for arch in ("transformer", "transformer_lm", "lightconv", "roberta")},
}


def answers(model, words, classifies):
    """Logits of words, and of a classification head where there is one."""
    if hasattr(model, "decoder"):
        source = (words, None) if hasattr(model, "encoder") else ()
        return [model(*source, shift(words))[0]]
    return [model(words)[0], *([model(words, classification_head_name="mood")[0]] if classifies else [])]


def made(make, **options):
    """A model with a classification head if it can have one, its tensors, and its parameters after two updates."""
    model = make(**options).train()
    classifies = hasattr(model, "register_classification_head")
    if classifies:
        model.register_classification_head("mood", 2)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    # fairseq's trainer gives its optimizer what requires a gradient; weight decay would move the rest, if it were there.
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.01, weight_decay=0.1)
    for step in (1, 2):
        words = pad(sentences(6, 4, 7, seed=step))
        model.set_num_updates(step)
        optimizer.zero_grad()
        sum(functional.log_softmax(scores, -1)[..., 1].sum() for scores in answers(model, words, classifies)).backward()
        optimizer.step()
    return model, before


def unmoved(model, before):
    """Parameters that are as they were, but for those without a gradient: of a bias of the keys it is 0 but for rounding, and
    lightconv does not use its ``conv_bias``, and leaves in it what the memory held, so that bits are compared: NaN is not itself."""
    still = {n for n, p in model.named_parameters() if torch.equal(p.view(torch.int32), before[n].view(torch.int32))}
    without_gradient = {name for name in still if name.endswith(("k_proj.bias", "conv_bias"))}
    return still - {name for name in without_gradient if model.get_parameter(name).requires_grad}


@pytest.mark.parametrize("arch", MODELS)
def test_what_each_component_freezes_stays_and_the_rest_moves(arch):
    plain, before = made(MODELS[arch])
    random = {entry.name for entry in plain.slot_table.entries if not entry.trained and not entry.seen_by}
    assert unmoved(plain, before) == random
    names = [name for name, _ in plain.named_parameters()]
    chosen = {
        c: {n for n in names if (is_bias(n) if c == "bias" else atom(n) in GROUPS.get(c, {c}))} for c in COMPONENTS
    }
    for component, expected in chosen.items():
        if not expected:
            with pytest.raises(InputError, match=f"'{component}' matches nothing in this model; its components: "):
                MODELS[arch](freeze=component)
            continue
        model, before = made(MODELS[arch], freeze=component)
        assert unmoved(model, before) == expected | random, component
        buffers = {name: b for name, b in model.named_buffers() if "random_layer" in name or "frozen" in name}
        assert all(torch.equal(tensor, before[name]) for name, tensor in buffers.items() if name in before)
    assert sum(map(bool, chosen.values())) >= 8


@pytest.mark.parametrize("arch", MODELS)
def test_a_checkpoint_goes_on_with_its_own_spec_only(arch):
    def load(spec, tensors, goes_on):
        token = resuming.set(Resumed("checkpoints/checkpoint_last.pt", "checkpoints") if goes_on else None)
        try:
            model = MODELS[arch](freeze=spec)
            model.load_state_dict(dict(tensors))
            return model.state_dict()
        finally:
            resuming.reset(token)

    stored = MODELS[arch](freeze="ln").state_dict()
    load("ln", stored, goes_on=True)
    message = "--freeze fc1: the checkpoint was trained with ln; give ln, or --reset-optimizer, or start a new training"
    with pytest.raises(InputError, match=message):
        load("fc1", stored, goes_on=True)
    # As with --reset-optimizer or --finetune-from-model; what comes of it goes on with the new spec and not with the old.
    changed = load("fc1", stored, goes_on=False)
    load("fc1", changed, goes_on=True)
    with pytest.raises(InputError, match="--freeze ln: the checkpoint was trained with fc1"):
        load("ln", changed, goes_on=True)


@pytest.mark.parametrize("arch", MODELS)
def test_freezing_everything_is_refused(arch):
    components = {entry.atom for entry in MODELS[arch]().slot_table.entries if entry.trained}
    spec = ",".join(sorted(components))
    if "roberta" in arch:  # its task may add a head; where none does the trainer refuses it (test_roberta.py)
        assert MODELS[arch](freeze=spec).slot_table.trained_parameters == 0
    else:
        with pytest.raises(InputError, match="freezes every parameter"):
            MODELS[arch](freeze=spec)
    with pytest.raises(InputError, match="'layers.9' matches nothing in this model"):
        MODELS[arch](freeze="layers.9")
