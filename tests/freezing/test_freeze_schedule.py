"""Freeze schedules against schedules by hand, and against a slow reference that replays every change from the start."""

import pytest
from hypothesis import given, strategies as st

from fairseq_reservoir.errors import InputError
from fairseq_reservoir.freezing.freeze_schedule import layers_of
from fairseq_reservoir.plan import freeze_spec
from tests.support.schedules import schedule_of_flags

EMB = "encoder.embed_tokens.weight"
ENCODER = [f"encoder.layers.{i}.{part}" for i in range(3) for part in ("fc1.weight", "self_attn.q_proj.weight")]
DECODER = [f"decoder.layers.{i}.{part}" for i in range(2) for part in ("fc1.weight", "encoder_attn.q_proj.weight")]
NAMES = [EMB, *ENCODER, *DECODER]


def test_components_freeze_and_unfreeze_at_their_updates():
    schedule = schedule_of_flags(NAMES, schedule="0:emb;2000:encoder.layers.0-2;8000:-emb")
    assert schedule.frozen(0) == schedule.frozen(1999) == {EMB}
    assert schedule.frozen(2000) == schedule.frozen(7999) == {EMB, *ENCODER}
    assert schedule.frozen(8000) == schedule.frozen(10**9) == {*ENCODER}
    assert schedule.skipped(7) == set()
    assert str(schedule).splitlines()[2] == "update 8000: emb trained again; 6 of 11 tensors are frozen"


def test_one_update_can_freeze_and_unfreeze():
    schedule = schedule_of_flags(NAMES, schedule="0:emb;7:-emb;7:encoder.ffn")
    assert schedule.frozen(6) == {EMB} and schedule.frozen(7) == {n for n in ENCODER if "fc1" in n}


def test_gains_and_adapters_are_not_listed_as_components():
    names = [*NAMES, "encoder.layers.0.rezero_gain", "encoder.layers.0.fc1.frozen_adapter.A"]
    with pytest.raises(InputError, match="its components: self_att.q cross_att.q fc1 emb; its layers"):
        schedule_of_flags(names, schedule="0:ln")


TIED = {"decoder.embed_tokens.weight": EMB, "decoder.output_projection.weight": EMB}


def test_a_tied_parameter_is_frozen_by_each_of_its_names():
    for spec in ("out", "decoder.emb", "encoder.emb", "emb"):
        assert schedule_of_flags(NAMES, schedule=f"1:{spec}", aliases=TIED).frozen(1) == {EMB}
    assert schedule_of_flags(NAMES, schedule="1:decoder", aliases=TIED).frozen(1) == {EMB, *DECODER}
    assert schedule_of_flags(NAMES, update_every="decoder:3", aliases=TIED).skipped(1) == {EMB, *DECODER}


def test_a_tied_parameter_can_be_frozen_by_a_second_name():
    schedule = schedule_of_flags(NAMES, schedule="1:encoder;5:decoder.emb;6:decoder.layers.0;9:-out", aliases=TIED)
    assert schedule.frozen(1) == schedule.frozen(5) == {EMB, *ENCODER}
    assert schedule.frozen(9) == {*ENCODER, *DECODER[:2]}
    with pytest.raises(
        InputError,
        match="at update 9, encoder cannot be frozen, because an earlier entry freezes its parameter encoder.embed_tokens.weight",
    ):
        schedule_of_flags(NAMES, schedule="1:encoder;9:encoder", aliases=TIED)


def test_progressive_freezing():
    """Layer 0 of both stacks freezes at update 10, encoder layer 1 at update 15. The last layer of each stack never freezes."""
    schedule = schedule_of_flags(NAMES, progressive="10:5")
    assert schedule.frozen(9) == set()
    assert schedule.frozen(10) == schedule.frozen(14) == {*ENCODER[:2], *DECODER[:2]}
    assert schedule.frozen(15) == schedule.frozen(999) == {*ENCODER[:4], *DECODER[:2]}


def test_a_shared_tensor_freezes_with_the_last_layer_that_uses_it():
    """A matrix shared by all three layers stays trained, because layer 2 does. One shared by layers 0 and 1 freezes with layer 1."""
    norms = [f"encoder.layers.{i}.layer_norm.weight" for i in range(3)]
    names = ["encoder.shared_layer.fc1.latent", "encoder.layers.0.fc2.weight", *norms]
    aliases = {f"encoder.layers.{i}.shared_layer.fc1.latent": names[0] for i in range(3)}
    aliases["encoder.layers.1.fc2.weight"] = names[1]
    schedule = schedule_of_flags(names, progressive="10:5", aliases=aliases)
    assert schedule.frozen(10) == {norms[0]} and schedule.frozen(15) == {norms[0], norms[1], names[1]}
    with pytest.raises(
        InputError,
        match="--freeze-progressive 10:5: freezes nothing, because the lower layers share all parameters with the last layer",
    ):
        schedule_of_flags(
            [names[0], norms[2]], progressive="10:5", aliases=aliases | {"encoder.layers.1.fc2.weight": norms[2]}
        )


def test_progressive_freezing_after_the_embeddings():
    schedule = schedule_of_flags(NAMES, schedule="4:emb", progressive="10:5")
    assert schedule.frozen(4) == {EMB} and schedule.frozen(10) == {EMB, *ENCODER[:2], *DECODER[:2]}


def test_a_range_can_end_at_a_layer_frozen_by_the_plan():
    schedule = schedule_of_flags(NAMES[:-2], schedule="3:decoder.layers.0-1", untrained=NAMES[-2:])
    assert schedule.frozen(3) == {*DECODER[:2]}


def test_rotation():
    schedule = schedule_of_flags(NAMES, rotate="2:3", seed=5)
    layers = [set(names) for names in layers_of(NAMES).values()]
    assert len(layers) == 5
    period_counts = [0] * 5
    for update in range(300):
        frozen = schedule.frozen(update)
        trained = [i for i, layer in enumerate(layers) if not layer & frozen]
        assert (
            len(trained) == 2
            and EMB not in frozen
            and frozen == set().union(*layers) - set().union(*(layers[i] for i in trained))
        )
        assert frozen == schedule.frozen(update - update % 3)
        for i in trained:
            period_counts[i] += update % 3 == 0
    # Each of 100 periods trains 2 of 5 layers: 40 expected per layer, standard deviation sqrt(100 x 0.4 x 0.6) = 4.9
    assert all(25 < count < 55 for count in period_counts), period_counts
    assert schedule_of_flags(NAMES, rotate="2:3", seed=5).frozen(150) == schedule.frozen(150)
    others = schedule_of_flags(NAMES, rotate="2:3", seed=6)
    assert any(others.frozen(u) != schedule.frozen(u) for u in range(0, 30, 3))


def test_update_every():
    schedule = schedule_of_flags(NAMES, update_every="ffn:4,encoder.layers.1.att:2")
    ffn, att = {n for n in NAMES if "fc1" in n}, {ENCODER[3]}
    assert [schedule.skipped(u) for u in range(5)] == [set(), ffn | att, ffn, ffn | att, set()]
    assert schedule.frozen(3) == set()


@given(
    st.lists(st.tuples(st.integers(0, 30), st.sampled_from(["emb", "ffn", "encoder.att", "decoder.att"])), max_size=5),
    st.data(),
)
def test_against_a_replay(steps, data):
    frozen, entries, specs_after = set(), [], {}
    for update, spec in sorted(dict(steps).items()):
        minus = "-" if spec in frozen else ""
        frozen ^= {spec}
        if len(frozen) == 4:
            return
        entries.append(f"{update}:{minus}{spec}")
        specs_after[update] = set(frozen)
    schedule = schedule_of_flags(NAMES, schedule=";".join(entries))
    queried = data.draw(st.integers(0, 40))
    specs = (
        specs_after[max((u for u in specs_after if u <= queried), default=None)]
        if any(u <= queried for u in specs_after)
        else set()
    )
    expected = {name for spec in specs for name in freeze_spec.selected(spec, NAMES)}
    assert schedule.frozen(queried) == expected


@pytest.mark.parametrize(
    "flags, message",
    [
        (
            {"schedule": "5:emb;3:ffn"},
            "--freeze-schedule '5:emb;3:ffn': update 3 comes after update 5; sort the entries by update",
        ),
        ({"schedule": "emb"}, "'emb' is not UPDATE:COMPONENTS"),
        ({"schedule": "3:"}, "'3:' is not UPDATE:COMPONENTS"),
        ({"schedule": "-3:emb"}, "'-3:emb' is not UPDATE:COMPONENTS"),
        ({"schedule": "0:embx"}, "unknown component 'embx'"),
        ({"schedule": "0:out"}, "'out' matches nothing in this model"),
        ({"schedule": "²:emb"}, "'²:emb' is not UPDATE:COMPONENTS"),
        (
            {"schedule": "0:encoder.layers.0-20"},
            "--freeze-schedule 'encoder.layers.0-20': 'encoder.layers.0-20' names layers that this model",
        ),
        (
            {"update_every": "decoder.layers.1-2:4"},
            "'decoder.layers.1-2' names layers that this model does not have; its layers: encoder 0-2, decoder 0-1",
        ),
        ({"update_every": "ffn:²"}, "'ffn:²' is not COMPONENT:N"),
        (
            {"schedule": "0:ffn;7:encoder.layers.0"},
            "at update 7, encoder.layers.0 cannot be frozen, because an earlier entry freezes its parameter encoder.layers.0.fc1.weight; ",
        ),
        (
            {"schedule": "7:-emb"},
            "at update 7, emb is trained again, but the schedule has not frozen its parameter encoder.embed_tokens.weight; a",
        ),
        ({"schedule": "2:emb;7:encoder.att,ffn,decoder.att"}, "nothing is trained at update 7"),
        ({"schedule": "0:layers.0-2", "update_every": "emb:3"}, "nothing is trained at update 1"),
        ({"update_every": "encoder:2,decoder:3"}, "nothing is trained at update 1"),
        ({"update_every": "ffn:1"}, "'ffn:1' is not COMPONENT:N with N at least 2"),
        ({"update_every": "ffn"}, "'ffn' is not COMPONENT:N"),
        ({"update_every": "ffn:2,fc1:3"}, "has two periods"),
        ({"rotate": "6:10"}, "--freeze-rotate 6:10: the model has only 5 layers with trained parameters"),
        ({"rotate": "5:10"}, "the model has only 5 layers with trained parameters; give a smaller K"),
        ({"rotate": "²:10"}, "--freeze-rotate '²:10': must be K:PERIOD"),
        (
            {"rotate": "0:10"},
            "--freeze-rotate '0:10': must be K:PERIOD with whole numbers, K of at least 1 and PERIOD of at least 1",
        ),
        ({"rotate": "2"}, "must be K:PERIOD"),
        ({"rotate": "2:5", "schedule": "0:emb"}, "remove --freeze-schedule and --freeze-progressive"),
        (
            {"progressive": "5"},
            "--freeze-progressive '5': must be START:EVERY with whole numbers, START of at least 0 and EVERY of at least 1",
        ),
        ({"progressive": "0:0"}, "must be START:EVERY"),
    ],
)
def test_bad_input(flags, message):
    with pytest.raises(InputError) as refusal:
        schedule_of_flags(NAMES, **flags)
    assert message in str(refusal.value) and "\n" not in str(refusal.value)


def test_progressive_freezing_of_a_single_layer_is_refused():
    with pytest.raises(InputError, match="no stack has a layer below its last trained layer"):
        schedule_of_flags([EMB, *ENCODER[:2]], progressive="5:5")


def test_a_rotation_over_skipped_parameters_only_is_refused():
    with pytest.raises(
        InputError, match="in some updates, skips all parameters that --freeze-rotate trains; name fewer"
    ):
        schedule_of_flags(ENCODER, rotate="2:10", update_every="layers.0-1:4")
    schedule_of_flags(ENCODER, rotate="2:10", update_every="layers.0:4")
    schedule_of_flags(NAMES, rotate="1:10", update_every="layers.0-1:4")
