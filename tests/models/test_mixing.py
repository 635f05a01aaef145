"""M, S and s in whole models: trained parameters, slot table, random values of S, and fairseq's calls."""

import pytest
import torch

from fairseq_reservoir.errors import InputError
from fairseq_reservoir.plan import freeze_spec
from fairseq_reservoir.plan.kinds import WHOLE, kind_of, letters_where
from fairseq_reservoir.random_tensors import philox
from tests.support.building import build, build_roberta, logits, pad, sentences, shift
from tests.support.letters import LETTERS

# Width 8, feed-forward 12, 2 heads, 1024 positions.
FEED_FORWARD, PROJECTIONS, LAYERNORMS = (8 * 12 + 12) + (12 * 8 + 8), 2 * (8 * 8 + 8), 2 * (8 + 8)
ENCODER_MIX, DECODER_MIX = 2 * 2047, 2 * 1024
CROSS_ATTENTION = 4 * (8 * 8 + 8) + (8 + 8)


def rows(model, stack):
    return [row for row in model.slot_table.rows if row.place.startswith(f"{stack}.layers")]


def test_slot_table_by_hand():
    model = build("MSs", "Ss")
    encoder, decoder = rows(model, "encoder"), rows(model, "decoder")
    assert [row.kind for row in encoder] == ["M Fourier mixing", "S static mixing", "s static mixing"]
    assert [row.state for row in encoder] == ["trained", "partly frozen", "trained"]
    small = FEED_FORWARD + LAYERNORMS
    assert small == 244
    assert [row.parameters for row in encoder] == [small, *[small + PROJECTIONS + ENCODER_MIX] * 2]
    assert [row.parameters for row in decoder] == [small + PROJECTIONS + DECODER_MIX + CROSS_ATTENTION] * 2
    assert [row.parameters - row.trained_parameters for row in encoder + decoder] == [0, ENCODER_MIX, 0, DECODER_MIX, 0]
    # Two per entry of the matrices that a token uses. Token mixing is not counted for any kind of layer.
    ffn, projections = 2 * (8 * 12 + 12 * 8), 2 * (2 * 8 * 8)
    assert [row.flops for row in encoder] == [ffn, ffn + projections, ffn + projections]


@pytest.mark.parametrize("stack, count", [("encoder", "MSs"), ("decoder", "Ss")])
def test_every_parameter_has_an_atom(stack, count):
    model = build(**{stack: count})
    layers = [e for e in model.slot_table.entries if e.name.startswith(f"{stack}.layers")]
    assert "other" not in {e.atom for e in layers}
    mixing = [e for e in layers if e.atom == "self_att.mix"]
    assert [(e.name[-14:], e.trained) for e in mixing] == [(".self_attn.mix", False), (".self_attn.mix", True)]
    assert not any(e.random_name for e in layers if e.atom != "self_att.mix")


def test_freeze_reaches_mixing_by_name_and_as_a_part_of_attention():
    def frozen(**options):
        return {e.name for e in build("ML", "s", **options).slot_table.entries if not e.trained}

    mix = {"decoder.layers.0.self_attn.mix"}
    assert (
        frozen() == set()
        and frozen(freeze="mix") == frozen(freeze="self_att.mix") == frozen(freeze="decoder.mix") == mix
    )
    assert mix < frozen(freeze="self_att") < frozen(freeze="att")
    assert {freeze_spec.atom(name) for name in frozen(freeze="decoder.self_att")} == {
        "self_att.v",
        "self_att.o",
        "self_att.mix",
    }
    with pytest.raises(InputError, match="'encoder.mix' matches nothing"):
        frozen(freeze="encoder.mix")


def test_s_is_drawn_exactly_from_seed_and_name():
    model = build("LS", "S", reservoir_seed=5)
    for name, shape in (("encoder.layers.1", (2, 2047)), ("decoder.layers.0", (2, 1024))):
        name = f"{name}.self_attn.mix"
        assert torch.allclose(model.get_parameter(name), torch.from_numpy(philox.sign(5, name, shape)) / 4, rtol=1e-6)
        assert model.recipes[name].exact
    assert len(model.recipes) == 2
    assert (
        not build("s").encoder.layers[0].self_attn.mix.equal(build("s", torch_seed=2).encoder.layers[0].self_attn.mix)
    )


@pytest.mark.parametrize(
    "options, lengths", [({}, (1024, 1024)), ({"max_source_positions": 30, "max_target_positions": 9}, (30, 9))]
)
def test_positions_are_those_of_each_stack(options, lengths):
    model = build("S", "S", **options)
    assert (model.encoder.layers[0].self_attn.positions, model.decoder.layers[0].self_attn.positions) == lengths


@torch.no_grad()
def test_the_longest_sentences():
    model = build("Ss", "Ss", max_source_positions=30, max_target_positions=9).eval()
    source, target = pad(sentences(30, 3)), shift(pad(sentences(9, 9, seed=2)))
    assert logits(model, source, target).isfinite().all()
    # --required-seq-len-multiple pads the longest sentences, and --add-bos-token lengthens them.
    assert model.encoder(pad(sentences(31, 3)))["encoder_out"][0].isfinite().all()


@pytest.mark.parametrize("letter", letters_where("encoder", own_norm=False, fairseqs=False))
@pytest.mark.parametrize("before", [False, True])
def test_layernorm_stands_where_the_models_layers_have_it(letter, before):
    """--reservoir-norm does not apply to these layers."""
    for norm in ("paper", "model"):
        layer = build(f"L{letter}", encoder_normalize_before=before, reservoir_norm=norm).encoder.layers[1]
        assert {sublayer.norm_first for sublayer in layer.children()} == {before}


@pytest.mark.parametrize("heads, refused", [(3, True), (4, False)])
def test_heads_of_s_divide_the_width(heads, refused):
    if not refused:
        assert len(build("S", encoder_attention_heads=heads).encoder.layers[0].self_attn.mix) == heads
        return
    with pytest.raises(InputError, match="--encoder-attention-heads 3: must divide --encoder-embed-dim 8"):
        build("S", encoder_attention_heads=heads)


def test_m_in_a_decoder_is_refused_with_the_reason():
    with pytest.raises(
        InputError, match="M is not allowed in a decoder: its Fourier transform mixes each token with all later"
    ):
        build("L", "LM")


@pytest.mark.parametrize("letter", letters_where("decoder", sees_source=True))
def test_a_decoder_sees_and_aligns_to_the_source(letter):
    model = build("L", letter * 2).eval()
    source, target = pad(sentences(5, 3)), shift(pad(sentences(4, 4, seed=2)))
    attention = model(source, None, target)[1]["attn"][0]
    assert torch.allclose(attention.sum(2), torch.ones(2, 4))
    other = source.clone()
    other[:, 0] = 5
    assert (logits(model, source, target) - logits(model, other, target)).abs().amax(2).min() > 1e-4


@pytest.mark.parametrize("letter", letters_where("encoder", fairseqs=False))
@torch.no_grad()
def test_a_masked_language_model_reads_a_sentence_alone_as_in_a_batch(letter, exact_softmax):
    model = build_roberta("reservoir_roberta", reservoir_encoder=f"{letter}L{letter}").double().eval()
    rows = sentences(32, 9, 1)
    together = model(pad(rows))[0]
    for row, in_batch in zip(rows, together):
        assert (model(row[None])[0][0] - in_batch[: len(row)]).abs().max() < 1e-10


@pytest.mark.parametrize("letter", [a for a in LETTERS["encoder"] if kind_of(a).freezes != WHOLE])
@pytest.mark.parametrize("off", [False, True])
def test_no_dropout_in_frozen_layers_leaves_these_alone(letter, off):
    layer = build(letter, dropout=0.3, reservoir_no_dropout=off).encoder.layers[0]
    assert layer.ffn.dropout_module.p == 0.3
