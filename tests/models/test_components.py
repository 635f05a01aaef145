"""Every parameter has one atom. Freezing a component keeps its bits, and everything else is trained."""

from argparse import Namespace

import pytest
import torch
from fairseq import models

from fairseq_reservoir.checkpoint.dry_build import build_config
from fairseq_reservoir.freezing.description import DescribedInCheckpoint
from fairseq_reservoir.models.frozen.components import FrozenComponents
from fairseq_reservoir.plan.freeze_spec import (
    ATOMS,
    COMPONENTS,
    FROZEN_INITS,
    GROUPS,
    OTHER_ATTENTION,
    atom,
    is_bias,
    parse,
)
from tests.support.building import build, build_lm, build_roberta, logits, pad, sentences, shift

PRESETS = [
    arch
    for arch, model in models.ARCH_MODEL_REGISTRY.items()
    if issubclass(model, DescribedInCheckpoint) and not issubclass(model, FrozenComponents)
]
# It has all atoms of this package's models: "other" in the GRU and the convolution, "mix" in S and s.
EVERY_ATOM = {"encoder": "LsgS", "decoder": "Lsc", "encoder_learned_pos": True, "decoder_learned_pos": True}


# Large presets have the parts of the small ones in more layers.
LARGE = ("_large", "_big", "_deep", "_wmt", "_enwik8", "_wiki103")


@pytest.mark.parametrize(
    "arch", [pytest.param(arch, marks=[pytest.mark.slow] * any(size in arch for size in LARGE)) for arch in PRESETS]
)
def test_every_parameter_of_a_preset_has_one_atom(arch):
    model = build_config(Namespace(arch=arch, seed=1, tokens_per_sample=32), 20, 20)
    names = [name for name, _ in model.named_parameters()]
    items = [parse(text)[0] for text in ATOMS]
    for name in names:
        assert [item.text for item in items if item.matches(name)] == [atom(name)]
    assert {e.name: e.atom for e in model.slot_table.entries if not e.seen_by} == {name: atom(name) for name in names}
    assert "other" not in map(atom, names), "presets have ordinary layers only, whose parts all have names"


def test_the_model_of_the_next_tests_has_every_atom():
    assert {e.atom for e in build(**EVERY_ATOM).slot_table.entries} == set(ATOMS) - set(OTHER_ATTENTION)


@pytest.mark.parametrize("component", [c for c in COMPONENTS if c not in OTHER_ATTENTION])
def test_frozen_components_do_not_change_and_the_rest_does(component):
    model = build(**EVERY_ATOM, freeze=component)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    # fairseq's trainer passes only parameters with requires_grad to its optimizer. Weight decay would change the others.
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.01, weight_decay=0.1)
    for step in range(2):
        source, target = (pad(sentences(6, 4, 7, seed=2 * step + side)) for side in (1, 2))
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(
            logits(model, source, shift(target)).flatten(0, 1), target.flatten()
        ).backward()
        optimizer.step()
    still = {name for name, p in model.named_parameters() if torch.equal(p, before[name])}
    chosen = GROUPS.get(component, {component})
    frozen = {name for name in before if (is_bias(name) if component == "bias" else atom(name) in chosen)}
    random = {"encoder.layers.3.self_attn.mix"}  # S
    assert still == frozen | random


DRAWN = [init for init in FROZEN_INITS if init not in ("model", "diagonal", "zero")]


@pytest.mark.parametrize(
    "make, init",
    [
        *((lambda **options: build("LT", "L", **options), init) for init in DRAWN),
        (lambda **options: build_lm(plan="LT", **options), "orthogonal"),
        (lambda **options: build_roberta("reservoir_roberta", reservoir_encoder="LT", **options), "glorot"),
    ],
    ids=[*(f"translation {init}" for init in DRAWN), "language model", "RoBERTa"],
)
def test_frozen_init_of_our_models(make, init):
    one, other, plain = (
        make(freeze="emb,ffn", frozen_init=init),
        make(freeze="emb,ffn", frozen_init=init, torch_seed=2),
        make(),
    )
    drawn = {e.name for e in one.slot_table.entries if e.frozen_init == init}
    assert {atom(name) for name in drawn} == {"emb", "fc1", "fc2"} and drawn < one.recipes.keys()
    parameters = dict(one.named_parameters())
    for name, p in other.named_parameters():
        if p.dim() > 1:
            assert torch.equal(p, parameters[name]) == (name in one.recipes)
    letters = plain.recipes.keys()
    assert letters == one.recipes.keys() - drawn and all(
        torch.equal(plain.get_parameter(n), parameters[n]) for n in letters
    )


def test_frozen_init_of_a_models_own_classification_heads():
    flags = {"reservoir_encoder": "L", "freeze": "out", "frozen_init": "glorot"}
    both = [build_roberta("reservoir_roberta", torch_seed=seed, **flags) for seed in (1, 2)]
    for model in both:
        model.register_classification_head("topic", num_classes=2)
    one, other = (model.classification_heads.state_dict() for model in both)
    assert len(one) == 4 and all(torch.equal(one[name], other[name]) for name in one)
