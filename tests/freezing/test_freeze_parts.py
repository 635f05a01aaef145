"""The order in which layers freeze, and what freezes with each, worked out by hand."""

from argparse import Namespace

import pytest

from fairseq_reservoir.errors import InputError
from fairseq_reservoir.freezing.freeze_parts import parts
from fairseq_reservoir.freezing.freeze_skip_flags import schedule_of
from tests.support.building import build, build_lm, build_roberta
from tests.support.schedules import schedule_of_flags

EMB, BELOW = "encoder.embed_tokens.weight", "encoder.layernorm_embedding.weight"
NAMES = [
    EMB,
    BELOW,
    "encoder.layers.0.fc1.weight",
    "encoder.layers.1.fc1.weight",
    "encoder.layer_norm.weight",
    "decoder.embed_tokens.weight",
    "decoder.layers.0.fc1.weight",
    "decoder.layers.1.fc1.weight",
    "decoder.layer_norm.weight",
    "decoder.output_projection.weight",
]


def order(owners, keep=1, **more):
    return {part.name: set(part.tensors) for part in parts(owners, keep, **more)}


def own(names):
    return {name: name for name in names}


def test_from_input_to_output():
    """The norm above the encoder goes with its last layer, as it is read only above; what is above the decoder stays."""
    assert order(own(NAMES)) == {
        "encoder.layers.0": {EMB, BELOW, NAMES[2]},
        "encoder.layers.1": {NAMES[3], NAMES[4]},
        "decoder.layers.0": {NAMES[5], NAMES[6]},
    }
    assert list(order(own(NAMES[::-1]))) == ["encoder.layers.0", "encoder.layers.1", "decoder.layers.0"]
    assert list(order(own(NAMES), keep=3)) == ["encoder.layers.0"]


def test_what_is_shared_with_the_output_stays_trained():
    names = [name for name in NAMES if name not in ("decoder.embed_tokens.weight", "decoder.output_projection.weight")]
    tied = own(names) | {"decoder.embed_tokens.weight": EMB, "decoder.output_projection.weight": EMB}
    assert not any(EMB in tensors for tensors in order(tied).values())
    assert order(tied)["encoder.layers.0"] == {BELOW, NAMES[2]}


def test_what_both_stacks_share_freezes_with_the_later():
    tied = own(name for name in NAMES if name != "decoder.embed_tokens.weight") | {"decoder.embed_tokens.weight": EMB}
    assert order(tied)["encoder.layers.0"] == {BELOW, NAMES[2]} and EMB in order(tied)["decoder.layers.0"]
    assert not any(EMB in tensors for tensors in order(tied, keep=2).values())


def test_layers_of_which_nothing_is_trained_are_passed_over():
    rest = [name for name in NAMES if "encoder.layers.0" not in name]
    assert order(own(rest))["encoder.layers.1"] == {EMB, BELOW, NAMES[3], NAMES[4]}


def test_tensors_that_are_frozen_by_other_means_are_left_to_them():
    assert order(own(NAMES), spared=[EMB])["encoder.layers.0"] == {BELOW, NAMES[2]}


@pytest.mark.parametrize("keep, way_out", [(4, "keep fewer"), (9, "keep fewer")])
def test_something_has_to_be_left(keep, way_out):
    with pytest.raises(InputError) as refusal:
        parts(own(NAMES), keep)
    assert str(refusal.value).startswith(f"--freeze-auto-keep {keep}: the model has 4 layers with something to train")
    assert str(refusal.value).endswith(way_out)
    with pytest.raises(InputError, match="has 1 layers .*; leave out --freeze-auto"):
        parts(own(NAMES[:3]), 1)


def test_of_real_models():
    """The names that a part has are those of the model's parameters, and nothing of the input is forgotten."""
    asked = Namespace(freeze_auto=True)
    for model, stacks in (
        (
            build("LT", "LL", encoder_learned_pos=True, layernorm_embedding=True),
            "encoder.layers.0 encoder.layers.1 decoder.layers.0",
        ),
        (build_lm(plan="LLL", share_decoder_input_output_embed=True), "decoder.layers.0 decoder.layers.1"),
        (build_roberta("reservoir_roberta", reservoir_encoder="LL"), "encoder.layers.0"),
    ):
        schedule = schedule_of(asked, model, seed=1)
        assert schedule.frozen(99) == set()
        first = schedule.parts[0].name
        schedule.freeze(first, 7)
        trained = {name for name, p in model.named_parameters() if p.requires_grad}
        assert schedule.frozen(6) == set() and schedule.frozen(7) < trained and len(schedule.frozen(7)) > 10
        assert [part.name for part in schedule.parts] == [s for s in stacks.split() if s in str(schedule)]


def test_a_schedule_by_number_of_a_model_that_leaves_layers_out_is_refused():
    """--freeze knows its layers by the numbers of the whole model, a schedule would by those that are left."""
    model = build("LLL", "L", encoder_layers_to_keep="0,2")
    for flag, value in (("freeze_schedule", "3:encoder.layers.1"), ("freeze_update_every", "encoder.layers.1.ffn:2")):
        asked = Namespace(**{"freeze_schedule": None, "freeze_update_every": None, flag: value})
        with pytest.raises(InputError, match="names layers by number, which --encoder-layers-to-keep 0,2 changes"):
            schedule_of(asked, model, seed=1)
    asked = Namespace(freeze_schedule="3:encoder.ffn", freeze_update_every=None)
    assert len(schedule_of(asked, model, seed=1).frozen(3)) == 2 * 4


def test_entries_that_are_learned_stand_between_those_that_were_given():
    schedule = schedule_of_flags(NAMES, schedule="2:encoder.emb;9:-encoder.emb", auto=True)
    schedule.freeze("encoder.layers.0", 5)
    assert schedule.frozen(4) == {EMB} and schedule.frozen(5) == schedule.frozen(8) == {EMB, BELOW, NAMES[2]}
    assert schedule.frozen(9) == {BELOW, NAMES[2]}
    assert "update 5: encoder.layers.0 with encoder.layernorm_embedding frozen; 3 of 10 tensors are frozen" in str(
        schedule
    )
    schedule.forget_learned()
    assert schedule.frozen(5) == {EMB} and schedule.frozen(9) == set()
