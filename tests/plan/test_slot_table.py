"""Slot tables compiled from names and shapes."""

import pytest

from fairseq_reservoir.errors import InputError
from fairseq_reservoir.plan.layer_plan import slots
from fairseq_reservoir.plan.slot_table import compile_table
from fairseq_reservoir.plan.table_inputs import FreezeChoices, ModelFacts
from tests.support.building import build, build_supermask

# A model of width 4 and FFN 8: one frozen and one trained feed-forward slot, and a decoder slot C with its cross-attention.
PARAMETERS = [
    ("encoder.embed_tokens.weight", (10, 4)),
    ("encoder.layers.0.ffn.fc1.weight", (8, 4)),
    ("encoder.layers.0.ffn.fc1.bias", (8,)),
    ("encoder.layers.0.ffn.layer_norm.weight", (4,)),
    ("encoder.layers.1.ffn.fc1.weight", (8, 4)),
    ("decoder.layers.0.conv.linear2.weight", (4, 4)),
    ("decoder.layers.0.cross.encoder_attn.q_proj.weight", (4, 4)),
    ("decoder.layers.0.cross.layer_norm.weight", (4,)),
]
PLANS = {"encoder": slots("Ff"), "decoder": slots("C")}
ALIASES = {"decoder.output_projection.weight": ("encoder.embed_tokens.weight", (10, 4))}


def compiled(parameters=PARAMETERS, plans=PLANS, seed=7, aliases=ALIASES, untrained=(), kept=None, **choices):
    facts = ModelFacts(untrained=untrained, aliases=aliases, kept=kept or {})
    return compile_table(parameters, plans, seed, FreezeChoices(**choices), facts)


def frozen(table):
    return [e.name for e in table.entries if not e.trained]


def test_letters_freeze_their_slots_but_not_the_cross_attention():
    assert frozen(compiled()) == [
        "encoder.layers.0.ffn.fc1.weight",
        "encoder.layers.0.ffn.fc1.bias",
        "encoder.layers.0.ffn.layer_norm.weight",
        "decoder.layers.0.conv.linear2.weight",
    ]


def test_counts_by_hand():
    table = compiled()
    # 40 + (32 + 8 + 4) + 32 + (16 + 16 + 4) = 152; frozen 44 + 16 = 60
    assert table.parameters == 152 and table.trained_parameters == 92
    assert [(r.place, r.state, r.parameters) for r in table.rows] == [
        ("encoder.embed_tokens", "trained", 40),
        ("encoder.layers.0", "frozen", 44),
        ("encoder.layers.1", "trained", 32),
        ("decoder.layers.0", "partly frozen", 36),
        ("decoder.output_projection", "tied", 0),
    ]
    # Two per weight of each product: embedding 0, tied output 2*40, fc1 2*32, conv and query 2*16 each.
    assert [r.flops for r in table.rows] == [0, 64, 64, 64, 80]


def test_every_parameter_stands_in_the_table_once():
    assert sorted(e.name for e in compiled().entries) == sorted(name for name, _ in PARAMETERS)


def test_layernorms_of_frozen_slots_can_be_trained():
    assert "encoder.layers.0.ffn.layer_norm.weight" not in frozen(compiled(train_layernorm=True))


def test_freeze_adds_and_freeze_except_spares():
    assert "encoder.embed_tokens.weight" in frozen(compiled(freeze="emb"))
    assert "encoder.embed_tokens.weight" in frozen(compiled(freeze="out")), (
        "a tied parameter answers to each of its names"
    )
    spared = compiled(freeze_except="emb,cross_att")
    assert [e.name for e in spared.entries if e.trained] == [
        "encoder.embed_tokens.weight",
        "decoder.layers.0.cross.encoder_attn.q_proj.weight",
    ]
    assert "encoder.layers.0.ffn.fc1.bias" in frozen(compiled(freeze_except="ffn,emb")), (
        "a letter's freeze is never undone"
    )
    assert frozen(compiled(freeze="ffn", freeze_except="encoder.layers.1")) == frozen(compiled())


def test_only_tensors_of_reservoirs_are_drawn_by_name():
    drawn = {e.name: e.random_name for e in compiled(freeze="emb").entries if e.random_name}
    assert drawn == {n: n for n in frozen(compiled())}


def test_names_of_a_pruned_model_are_those_of_the_full_one():
    parameters = [("encoder.layers.1.ffn.fc1.weight", (8, 4)), ("encoder.layers.0.fc1.weight", (8, 4))]
    table = compiled(parameters, {"encoder": slots("LTFL", "0,2")}, seed=1, aliases={})
    assert table.entries[0].random_name == "encoder.layers.2.ffn.fc1.weight"


def test_freezing_everything_is_refused():
    with pytest.raises(InputError, match=r"--freeze encoder,decoder freezes every parameter \(encoder Ff, decoder C\)"):
        compiled(freeze="encoder,decoder")
    with pytest.raises(
        InputError, match="--freeze encoder,decoder freezes every parameter; leave at least one parameter to train"
    ):
        compiled(plans={}, aliases={}, seed=1, freeze="encoder,decoder")


def test_a_spec_that_freezes_nothing_is_refused():
    with pytest.raises(InputError, match="--freeze ffn --freeze-except ffn,emb freezes nothing; change or remove it"):
        compiled(freeze="ffn", freeze_except="ffn,emb")
    with pytest.raises(InputError, match="--freeze-except encoder,decoder freezes nothing"):
        compiled(freeze_except="encoder,decoder")


def test_specs_that_do_not_overlap_are_refused():
    with pytest.raises(
        InputError, match="--freeze-except cross_att: does not overlap with --freeze emb; remove one of them"
    ):
        compiled(freeze="emb", freeze_except="cross_att")


def test_a_model_without_plans_has_one_row_per_layer():
    table = compiled(
        [("encoder.layers.0.fc1.weight", (8, 4)), ("encoder.layers.1.fc1.weight", (8, 4))], {}, aliases={}, seed=1
    )
    assert [r.place for r in table.rows] == ["encoder.layers.0", "encoder.layers.1"]


def test_the_printed_table():
    lines = str(compiled()).splitlines()
    assert lines[0].split() == ["slot", "kind", "state", "parameters", "trained", "MFLOP/token"]
    assert lines[2].split() == ["encoder.layers.0", "F", "feed-forward", "frozen", "44", "0", "0.000"]
    assert lines[-3].split() == ["total", "152", "92", "0.000"]
    # 92 / 152 = 0.60526; without the vectors of 8 + 4 + 4 entries (40 + 32 + 16) / (152 - 16) = 0.64706
    assert lines[-2] == (
        "trained 60.53% of the parameters, 64.71% of those in matrices; frozen 39.47%, random tensors drawn from seed 7"
    )
    # Forward 64 + 64 + 32 + 32 + 80 = 272. Backward: inputs 64 + 64 in the encoder and 80 of the output, but none below the
    # decoder's first trained tensor; weights 64, 32 and 80. 1 - 384 / 544 = 0.29412
    assert lines[-1] == "backward 0.000 MFLOP/token, 29.41% less than with everything trained"
    assert (compiled().flops, compiled().backward_flops) == (272, 384)


def test_a_table_without_random_tensors_names_no_seed():
    # feed-forward 32 + 8 + 32 of 152
    assert "of those in matrices; frozen 47.37%\n" in str(compiled(plans={}, aliases={}, seed=7, freeze="ffn"))


def test_frozen_init_draws_the_tensors_of_a_spec_by_name():
    table = compiled(freeze="encoder.ln,cross_att,emb", frozen_init="glorot")
    by_spec = {e.name: e.random_name for e in table.entries if e.frozen_init == "glorot"}
    assert by_spec == {
        n: n for n in ("encoder.embed_tokens.weight", "decoder.layers.0.cross.encoder_attn.q_proj.weight")
    }, "the LayerNorm is frozen by its letter, which says how it is drawn"


def test_a_matrix_that_is_the_product_of_two_tensors_is_not_drawn():
    """A gain of zeros would give NaN, and so would rows of zeros divided by their norm."""
    parameters = [("encoder.fc1.weight_g", (4, 1)), ("encoder.fc1.weight_v", (4, 3)), ("decoder.fc1.weight", (2, 2))]
    for init in ("zero", "diagonal", "orthogonal", "glorot"):
        with pytest.raises(
            InputError, match=f"--frozen-init {init}: cannot draw encoder.fc1.weight_g, because it is a factor of a"
        ):
            compiled(parameters, {}, aliases={}, seed=1, freeze="encoder", frozen_init=init)
    assert compiled(parameters, {}, aliases={}, seed=1, freeze="encoder").trained_parameters == 4


def test_a_vector_of_unknown_meaning_keeps_its_values():
    parameters = [
        ("decoder.scale", (4,)),
        ("decoder.conv.bias", (4,)),
        ("decoder.norm.layer_norm.weight", (4,)),
        ("decoder.kernel", (4, 1, 3)),
    ]
    table = compiled(
        [*parameters, ("x.fc1.weight", (2, 2))], {}, aliases={}, seed=1, freeze="decoder", frozen_init="orthogonal"
    )
    assert [e.frozen_init for e in table.entries] == [None, "orthogonal", "orthogonal", "orthogonal", None]
    assert [e.trained for e in table.entries] == [False] * 4 + [True]


def test_parameters_that_the_model_does_not_train_stay_untrained():
    table = compiled(plans={}, aliases={}, seed=1, freeze="emb", untrained=["encoder.layers.1.ffn.fc1.weight"])
    assert frozen(table) == ["encoder.embed_tokens.weight", "encoder.layers.1.ffn.fc1.weight"]


@pytest.mark.parametrize("init, zeros", [("diagonal", 6), ("zero", 10)])
def test_tables_of_words_are_not_made_all_alike(init, zeros):
    with pytest.raises(
        InputError,
        match=rf"--frozen-init {init}: sets {zeros} of the 10 rows of encoder.embed_tokens.weight to 0",
    ):
        compiled(freeze="emb", frozen_init=init)
    compiled(
        [("lm_head.dense.weight", (4, 4)), ("a.fc1.weight", (1,))],
        {},
        aliases={},
        seed=1,
        freeze="out",
        frozen_init="diagonal",
    )


@pytest.mark.parametrize(
    "spec, kept, frozen",
    [
        ("encoder.layers.2.ffn", "0,2", ["encoder.layers.1"]),
        ("encoder.layers.2.ffn", "2,1", ["encoder.layers.1"]),
        ("encoder.layers.0.ffn", "1,2", []),
        ("encoder.layers.0-1.ffn,decoder.emb", "1,2", ["decoder.embed_tokens", "encoder.layers.0"]),
    ],
)
def test_specs_name_the_layers_of_a_pruned_model_as_they_were_trained(spec, kept, frozen):
    table = build("LLL", "L", freeze=spec, encoder_layers_to_keep=kept).slot_table
    assert sorted(row.place for row in table.rows if row.trained_parameters < row.parameters) == frozen


def test_names_of_a_matrix_that_layers_share_are_those_of_the_layers_as_they_were_trained():
    """Layers 0 and 2 of three share one trained layer's matrices. Layer 2 selects them; layer 1 was pruned and selects nothing."""

    def frozen(spec):
        model = build_supermask(
            mask_trained_weights="sign", encoder_layers=3, encoder_layers_to_keep="0,2", freeze=spec
        )
        return {
            e.name
            for e in model.slot_table.entries
            if not e.trained and ".fc" in e.name and e.name.startswith("encoder")
        }

    assert frozen("encoder.layers.2.ffn") == frozen("encoder.ffn") != set()
    assert not frozen("encoder.layers.1.ffn")


def test_the_printed_table_names_frozen_components():
    lines = str(build("LL", "T", freeze="encoder.att,ln").slot_table).splitlines()
    states = {line.split()[0]: line for line in lines if ".layers." in line}
    assert "frozen: att, ln" in states["encoder.layers.0"]
    assert " frozen  " in states["decoder.layers.0"]


def test_equal_neighbours_are_one_row_of_the_short_text():
    parameters = [(f"encoder.layers.{i}.ffn.fc1.weight", (8, 4)) for i in range(4)]
    table = compiled(parameters, {"encoder": slots("ffFf")}, aliases={})
    # Each layer has 8 x 4 = 32 parameters, 64 FLOPs per token; the two trained neighbours have 64 and 128.
    assert [line.split() for line in table.short_text().splitlines()[1:5]] == [
        ["encoder.layers.0-1", "2", "x", "f", "feed-forward", "trained", "64", "64", "0.000"],
        ["encoder.layers.2", "F", "feed-forward", "frozen", "32", "0", "0.000"],
        ["encoder.layers.3", "f", "feed-forward", "trained", "32", "32", "0.000"],
        ["total", "128", "96", "0.000"],
    ]
    assert len(str(table).splitlines()) == 8
