"""Every row of ``plan/kinds.py`` is true of its layer, and a row with any wrong field fails.

Some fields are checked by the behaviour of the layer. The table in the documentation has all of them a second time.
"""

import importlib.util
from argparse import Namespace
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch
from fairseq.models.transformer import TransformerConfig
from fairseq.modules.transformer_layer import TransformerDecoderLayerBase, TransformerEncoderLayerBase
from fairseq.quantization_utils import quantize_model_scalar

from fairseq_reservoir.errors import InputError
from fairseq_reservoir.layers import BUILDERS, build_slot
from fairseq_reservoir.plan import kinds
from fairseq_reservoir.plan.kinds import NOTHING, STACKS, WHOLE, Kind
from tests.support.building import build, logits, pad, sentences, shift, slot_config

_spec = importlib.util.spec_from_file_location("kinds_table", Path(__file__).parents[2] / "scripts" / "kinds_table.py")
kinds_table = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(kinds_table)


def the_pages_have_its_line(kind):
    pages = list(kinds_table.pages())
    assert pages, "no page has the table of kinds"
    for path, text in pages:
        assert kinds_table.written(text) == text, f"{path}: python scripts/kinds_table.py, and read what it has written"


# Facts that no behaviour shows, from the papers and their code: --encoder-reservoir-type of Reservoir Transformers and the LayerNorm
# of their layers; FNet and MixiT have the LayerNorm of their model. New kinds only have their row.
PAPERS = {
    # frozen and trained letter, frozen tensors of the former, own_norm, reservoir_type
    "Transformer": ("T", "L", WHOLE, False, "transformer"),
    "feed-forward": ("F", "f", WHOLE, True, "ffn"),
    "GRU": ("G", "g", WHOLE, True, "gru"),
    "dynamic convolution": ("C", "c", WHOLE, True, "conv"),
    "Fourier mixing": (None, "M", NOTHING, False, None),
    "static mixing": ("S", "s", ("self_att.mix",), False, None),
}
BY_HAND = ("frozen_letter", "trained_letter", "freezes", "own_norm", "reservoir_type")


def it_is_as_the_papers_have_it(kind):
    found = tuple(getattr(kind, name) for name in BY_HAND)
    assert PAPERS.get(kind.name, found) == found


def layer(kind, stack, **sizes):
    """Build the layer alone, without the checks of the plans' flags."""
    if not kind.fairseqs:
        return build_slot(kind.letter, stack, slot_config(**sizes))
    config, given = TransformerConfig(), slot_config(**sizes)
    for part in (config.encoder, config.decoder):
        part.embed_dim, part.ffn_embed_dim, part.attention_heads = given.embed_dim, given.ffn_dim, given.heads
    return {"encoder": TransformerEncoderLayerBase, "decoder": TransformerDecoderLayerBase}[stack](config)


def can_be_built(kind, **sizes):
    try:
        for stack in STACKS:
            if stack not in kind.refused:
                layer(kind, stack, **sizes)
    except (ValueError, AssertionError):
        return False
    return True


@torch.no_grad()
def it_may_stand_where_it_does_not_look_ahead(kind):
    if kind.fairseqs:  # the decoder passes it the causal mask
        assert not kind.refused
        return
    alone, x = layer(kind, "decoder", memory_dim=0).eval(), torch.randn(6, 2, 8)
    other = torch.cat((x[:4], torch.randn(2, 2, 8)))
    looks_ahead = not torch.allclose(alone(x)[0][:4], alone(other)[0][:4], atol=1e-6)
    assert set(kind.refused) == ({"decoder"} if looks_ahead else set()), (
        f"{kind.name}: in a decoder it looks ahead: {looks_ahead}"
    )


@torch.no_grad()
def it_sees_the_source_if_it_says_so(kind):
    if "decoder" in kind.refused:
        assert not kind.sees_source
        return
    # An L above it, because a decoder without attention to the source is refused. Its attention to the source is disabled.
    model = build("L", f"L{kind.letter}").eval()
    for name, p in model.decoder.layers[0].named_parameters():
        if "encoder_attn.out_proj" in name:
            p.zero_()
    source, target = pad(sentences(5, 3)), shift(pad(sentences(4, 4, seed=2)))
    changes = (logits(model, source, target) - logits(model, source.flip(1), target)).abs().max() > 1e-5
    assert bool(changes) == kind.sees_source, f"{kind.name}: sees_source={kind.sees_source} is not true"


def an_even_width_is_needed_if_it_says_so(kind):
    assert can_be_built(kind, embed_dim=7, memory_dim=7, heads=1) == (not kind.even_width), (
        f"{kind.name}: even_width={kind.even_width} is not true"
    )


def heads_must_divide_the_width_if_it_says_so(kind):
    assert can_be_built(kind, heads=3) == (not kind.heads_divide), (
        f"{kind.name}: heads_divide={kind.heads_divide} is not true"
    )


@torch.no_grad()
def kernel_sizes_change_it_if_it_says_so(kind):
    """Layers of two kernel sizes have other shapes of parameters, or another output from equal parameters."""
    small, large = [layer(kind, "encoder", kernel_sizes=(size,)).eval() for size in (3, 5)]
    shapes = [[p.shape for p in one.parameters()] for one in (small, large)]
    changes = shapes[0] != shapes[1]
    if not changes:
        large.load_state_dict(small.state_dict())
        x = torch.randn(6, 2, 8)
        changes = not torch.equal(small(x, None), large(x, None))
    assert changes == kind.kernel_sizes, f"{kind.name}: kernel_sizes={kind.kernel_sizes} is not true"


def it_takes_scalar_noise_if_it_says_so(kind):
    model = build(f"L{kind.letter}")
    try:
        quantize_model_scalar(model, Namespace(quant_noise_scalar=0.1))
        taken = not any(
            isinstance(module, torch.nn.Linear) and type(module) is torch.nn.Linear
            for module in model.encoder.layers[1].modules()
        )
    except Exception:  # fairseq's own layers of many kinds
        taken = False
    assert taken == kind.takes_scalar_noise, f"{kind.name}: takes_scalar_noise={kind.takes_scalar_noise} is not true"


def it_is_fairseqs_if_it_says_so(kind):
    assert kind.fairseqs == (kind.letter not in BUILDERS)
    built = build(f"L{kind.letter}").encoder.layers[1]
    assert type(built).__module__.startswith("fairseq.") == kind.fairseqs


CHECKS = {
    "refused": it_may_stand_where_it_does_not_look_ahead,
    "sees_source": it_sees_the_source_if_it_says_so,
    "even_width": an_even_width_is_needed_if_it_says_so,
    "heads_divide": heads_must_divide_the_width_if_it_says_so,
    "kernel_sizes": kernel_sizes_change_it_if_it_says_so,
    "takes_scalar_noise": it_takes_scalar_noise_if_it_says_so,
    "fairseqs": it_is_fairseqs_if_it_says_so,
}
EVERY_CHECK = (the_pages_have_its_line, it_is_as_the_papers_have_it, *CHECKS.values())
OURS = [pytest.param(kind, id=kind.name) for kind in kinds.all_kinds()]


@pytest.mark.parametrize("kind", OURS)
@pytest.mark.parametrize(
    "check", [the_pages_have_its_line, it_is_as_the_papers_have_it, *CHECKS.values()], ids=lambda check: check.__name__
)
def test_the_row_is_true(check, kind):
    check(kind)


def wrong_values(kind, name):
    """Invalid values of a field of this kind."""
    value = getattr(kind, name)
    if isinstance(value, bool):
        return [not value]
    others = {
        "frozen_letter": [None, "X", kind.trained_letter],
        "trained_letter": [None, "x", kind.frozen_letter],
        "freezes": [WHOLE, NOTHING, ("fc1",), ("self_att.mix", "ln")],
        "refused": [{}, {"decoder": "it cannot"}, {"encoder": "it cannot"}],
        "reservoir_type": [None, "other"],
        "name": ["other"],
        "about": ["other"],
        "registered_by": ["elsewhere"],
    }[name]
    return [other for other in others if other != value]


MUTANTS = [
    pytest.param(kind, field.name, value, id=f"{kind.name}: {field.name} {value}")
    for kind in kinds.all_kinds()
    for field in fields(Kind)
    for value in wrong_values(kind, field.name)
]


@pytest.mark.parametrize("kind, name, value", MUTANTS)
def test_a_wrong_row_does_not_pass(monkeypatch, kind, name, value):
    """A wrong row is refused as a contradiction, or differs from the page, or from the layer's behaviour."""
    try:
        mutant = replace(kind, **{name: value})
    except InputError:
        return
    rows = [mutant if other == kind else other for other in kinds.all_kinds()]
    monkeypatch.setattr(kinds, "_BY_LETTER", {letter: row for row in rows for letter in row.letters})
    shown_by_the_layer = name in CHECKS and not (
        name == "refused" and value.keys() == kind.refused.keys()
    )  # a reason is only text
    said_on_the_page = name not in ("fairseqs", "takes_scalar_noise")
    written_by_hand = name in BY_HAND and kind.name in PAPERS
    finds = [
        *[CHECKS.get(name)] * shown_by_the_layer,
        *[the_pages_have_its_line] * said_on_the_page,
        *[it_is_as_the_papers_have_it] * written_by_hand,
    ]
    for find in finds:
        with pytest.raises((AssertionError, InputError, KeyError)):
            find(mutant)


def test_every_field_is_made_wrong():
    assert {mutant.values[1] for mutant in MUTANTS} == {field.name for field in fields(Kind)}
    assert len(MUTANTS) >= 6 * len(fields(Kind))
