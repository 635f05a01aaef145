"""Freeze specs: the atom of every parameter, the grammar, and the selected parameters."""

import pytest

from fairseq_reservoir.errors import InputError
from fairseq_reservoir.plan.freeze_spec import ATOMS, COMPONENTS, atom, parse, selected, summary

NAMES = {
    "encoder.embed_tokens.weight": "emb",
    "encoder.embed_positions.weight": "pos",
    "encoder.layernorm_embedding.weight": "ln",
    "encoder.layers.0.self_attn.q_proj.weight": "self_att.q",
    "encoder.layers.0.self_attn.q_proj.bias": "self_att.q",
    "encoder.layers.0.self_attn.out_proj.bias": "self_att.o",
    "encoder.layers.0.self_attn_layer_norm.weight": "ln",
    "encoder.layers.1.self_attn.mix": "self_att.mix",
    "encoder.layers.0.fc1.bias": "fc1",
    "encoder.layers.10.fc2.weight": "fc2",
    "encoder.layers.10.final_layer_norm.bias": "ln",
    "encoder.layers.10.gru.rightward.weight_ih_l0": "other",
    "encoder.layers.10.conv.conv.weight_linear.weight": "other",
    "decoder.layers.1.encoder_attn.k_proj.weight": "cross_att.k",
    "decoder.layers.1.cross.encoder_attn.v_proj.bias": "cross_att.v",
    "decoder.layers.1.encoder_attn_layer_norm.bias": "ln",
    "decoder.output_projection.weight": "out",
}


@pytest.mark.parametrize("name, expected", NAMES.items())
def test_atoms(name, expected):
    assert atom(name) == expected and expected in ATOMS


def test_atoms_are_found_by_whole_name_parts():
    assert atom("encoder.fc10.weight") == "other"
    assert atom("encoder.my_self_attn.q_proj.weight") == "other"


@pytest.mark.parametrize(
    "spec, expected",
    [
        ("emb", ["encoder.embed_tokens.weight"]),
        ("encoder.layers.0.q", ["encoder.layers.0.self_attn.q_proj.weight", "encoder.layers.0.self_attn.q_proj.bias"]),
        (
            "cross_att",
            ["decoder.layers.1.encoder_attn.k_proj.weight", "decoder.layers.1.cross.encoder_attn.v_proj.bias"],
        ),
        ("cross_att.k", ["decoder.layers.1.encoder_attn.k_proj.weight"]),
        ("encoder.ffn", ["encoder.layers.0.fc1.bias", "encoder.layers.10.fc2.weight"]),
        ("layers.0-9.ffn", ["encoder.layers.0.fc1.bias"]),
        (
            "decoder.bias",
            ["decoder.layers.1.cross.encoder_attn.v_proj.bias", "decoder.layers.1.encoder_attn_layer_norm.bias"],
        ),
        ("decoder", [n for n in NAMES if n.startswith("decoder")]),
        ("bias", [n for n in NAMES if n.endswith("bias")]),
        ("encoder.layers.10", [n for n in NAMES if n.startswith("encoder.layers.10.")]),
        ("out,pos", ["encoder.embed_positions.weight", "decoder.output_projection.weight"]),
        (" out , pos ", ["encoder.embed_positions.weight", "decoder.output_projection.weight"]),
    ],
)
def test_selection(spec, expected):
    assert selected(spec, NAMES) == set(expected)


@pytest.mark.parametrize(
    "spec, expected",
    [
        ("att", "att"),
        ("decoder", "cross_att, ln, out"),
        ("ffn,q", "q, ffn"),
        ("encoder.layers.0.bias", "o, fc1, 3 of 6 biases"),
        ("decoder.layers.1.bias", "v, 2 of 6 biases"),
        ("bias", "v, o, fc1, bias"),
        ("encoder.layers.10.ln,pos", "pos, 1 of 6 biases"),
        ("encoder.layernorm_embedding.weight", "1 of 4 ln"),
    ],
)
def test_summary(spec, expected):
    frozen = {spec} if spec in NAMES else selected(spec, NAMES)
    if spec == "decoder":
        frozen |= {name for name in NAMES if atom(name) == "ln"}
    assert summary(frozen, NAMES) == expected


def test_summary_of_weights_without_their_biases():
    names = [f"layers.0.{name}.{end}" for name in ("fc1", "fc2", "self_attn.q_proj") for end in ("weight", "bias")]
    frozen = [names[i] for i in (0, 2, 5)]
    assert [atom(name) for name in frozen] == ["fc1", "fc2", "self_att.q"]
    assert summary(frozen[:2], names) == "ffn weights"
    # One of three biases. Weights come first, then counts.
    assert summary(frozen, names) == "ffn weights, 1 of 3 biases"
    assert summary(names[:3], names) == "fc1, ffn weights"


def test_projections_around_layers_are_no_feed_forward_block():
    assert [atom(f"decoder.{name}.weight") for name in ("fc1", "fc2", "fc3", "fc_out")] == [
        "other",
        "other",
        "out",
        "out",
    ]
    assert atom("encoder.sentence_encoder.layers.3.experts.0.fc1.weight") == "fc1"
    assert atom("encoder.conformer_layers.0.ffn1.w_1.weight") == "fc1"
    assert atom("encoder.conformer_layers.0.ffn2.w_2.bias") == "fc2"


@pytest.mark.parametrize(
    "name, expected",
    [
        ("decoder.attention.0.in_projection.weight_v", "cross_att.other"),  # fconv
        ("decoder.attention.input_proj.weight", "cross_att.other"),  # LSTM
        ("encoder.conformer_layers.0.self_attn.linear_q.weight", "self_att.other"),
        ("decoder.layers.0.encoder_attn2.q_proj.weight", "cross_att.q"),
        ("encoder.layers.0.self_attn.in_proj_weight", "self_att.other"),  # torch
        ("decoder.layers.0.multihead_attn.out_proj.weight", "cross_att.o"),
    ],
)
def test_every_tensor_of_an_attention_belongs_to_att(name, expected):
    assert atom(name) == expected
    assert selected("att", [name, "encoder.fc1.weight"]) == selected(expected.split(".")[0], [name]) == {name}


def test_biases_of_recurrent_layers_are_biases():
    names = ["encoder.lstm.weight_ih_l0", "encoder.lstm.bias_ih_l0", "encoder.bias_table.weight"]
    assert selected("bias", names) == {"encoder.lstm.bias_ih_l0"}


def test_every_component_selects_its_atoms():
    by_atom = {a: {n for n in NAMES if NAMES[n] == a} for a in ATOMS}
    assert selected("att", NAMES) == set().union(*(by_atom[a] for a in ATOMS if "_att." in a))
    assert selected("k", NAMES) == by_atom["cross_att.k"]
    assert selected("other", NAMES) == by_atom["other"]


@pytest.mark.parametrize(
    "spec, reason",
    [
        ("foo", "unknown component 'foo'"),
        ("encoder.foo", "unknown component 'encoder.foo'"),
        ("fc10", "unknown component"),
        ("encoderffn", "unknown component"),
        ("att,", "unknown component ''"),
        ("layers.x.ffn", "unknown component"),
        ("layers.3-1.ffn", "the range 3-1 is descending; write 1-3"),
    ],
)
def test_refusals(spec, reason):
    with pytest.raises(InputError) as error:
        parse(spec)
    assert str(error.value).startswith(f"--freeze {spec!r}: ") and reason in str(error.value)


def test_unknown_components_list_the_known_ones():
    with pytest.raises(InputError, match=" ".join(COMPONENTS)):
        parse("foo")


def test_a_spec_that_matches_nothing_lists_components_and_layers():
    with pytest.raises(
        InputError,
        match="'layers.7.ffn' matches nothing in this model; its components: .*self_att.q .*; its layers: encoder 0-10, decoder 0-1",
    ):
        selected("emb,layers.7.ffn", NAMES)


@pytest.mark.parametrize("spec", ["layers.0-11", "encoder.layers.9-20.ffn", "decoder.layers.0-2.cross_att"])
def test_ranges_beyond_the_depth_are_refused(spec):
    with pytest.raises(
        InputError,
        match=f"--freeze 'emb,{spec}': '{spec}' names layers that this model .*; its layers: encoder 0-10, decoder 0-1",
    ):
        selected(f"emb,{spec}", NAMES)
    assert selected(f"emb,{spec}", NAMES, pruned=True) > selected("emb", NAMES)
    # The encoder has all these layers; the decoder, which has the component, does not.
    assert selected("layers.0-10.cross_att", NAMES) == selected("cross_att", NAMES)


def test_spared_components_may_be_missing_unless_they_have_a_place_or_nothing_else_matches():
    sinusoidal = [n for n in NAMES if NAMES[n] != "pos"]
    spared = selected("ln,pos,emb,out", sinusoidal, keeps_trained=True)
    assert spared == {n for n in NAMES if NAMES[n] in ("ln", "emb", "out")}
    for spec, nothing in (("emb,encoder.pos", "encoder.pos"), ("ln,layers.7", "layers.7"), ("pos", "pos")):
        with pytest.raises(InputError, match=f"--freeze-except '{spec}': '{nothing}' matches nothing"):
            selected(spec, sinusoidal, "--freeze-except", keeps_trained=True)
    with pytest.raises(InputError, match="'pos' matches nothing"):
        selected("ln,pos,emb,out", sinusoidal)
