"""Plan strings: both examples of the paper, all errors, and placement against a slow reference."""

import pytest
from hypothesis import given, strategies

from fairseq_reservoir.errors import InputError
from fairseq_reservoir.plan.kinds import kind_of, letters_where
from fairseq_reservoir.plan.layer_plan import Slot, compress, expand, plan_by_count, slots


@pytest.mark.parametrize(
    "plan, expanded",
    [("LLFLFLL", "LLFLFLL"), ("4L2F", "LLLLFF"), ("2LF2LF", "LLFLLF"), ("1T", "T"), ("10LfgcG", "LLLLLLLLLLfgcG")],
)
def test_run_lengths(plan, expanded):
    assert expand(plan, "--reservoir-encoder") == expanded


@given(strategies.lists(strategies.sampled_from(letters_where()), min_size=1, max_size=40).map("".join))
def test_compress_is_undone_by_expand(plan):
    assert expand(compress(plan), "--reservoir-encoder") == plan


@pytest.mark.parametrize(
    "plan, reason",
    [
        ("", "the plan is empty"),
        ("4", "no letter follows the count 4"),
        ("LL3", "no letter follows the count 3"),
        ("0L", "a count of 0 before L"),
        ("LRL", "use T, F, G or C"),
        ("LXL", "unknown letter 'X'"),
        ("L L", "unknown letter ' '"),
        ("L-2F", "unknown letter '-'"),
        ("２LF", "unknown letter '２'"),  # a digit, but not one of 0 to 9
    ],
)
def test_refusals_name_flag_and_value(plan, reason):
    with pytest.raises(InputError) as error:
        expand(plan, "--reservoir-encoder")
    message = str(error.value)
    assert message.startswith(f"--reservoir-encoder {plan!r}: ") and reason in message and "\n" not in message


@pytest.mark.parametrize("letter", sorted(set(letters_where("encoder")) - set(letters_where("decoder"))))
def test_a_decoder_cannot_look_ahead(letter):
    with pytest.raises(InputError, match=f"{letter} is not allowed in a decoder"):
        expand(f"L{letter}", "--reservoir-decoder", "decoder")


@pytest.mark.parametrize(
    "layers, count, plan",
    [
        (7, 3, "LFLFLFL"),  # the paper's
        (7, 2, "LLFLFLL"),  # the paper's
        (6, 2, "LFLFLL"),  # odd slack of 3: one below, two above
        (8, 2, "LLFLFLLL"),
        (12, 4, "LLFLFLFLFLLL"),
        (1, 1, "F"),
        (5, 3, "FLFLF"),
        (6, 0, "LLLLLL"),
    ],
)
def test_alternate_is_centred(layers, count, plan):
    assert plan_by_count(layers, count, "ffn", "alternate") == plan


def test_blocks():
    assert plan_by_count(6, 2, "transformer", "bottom") == "TTLLLL"
    assert plan_by_count(6, 2, "gru", "middle") == "LLGGLL"
    assert plan_by_count(7, 2, "gru", "middle") == "LLGGLLL"
    assert plan_by_count(6, 2, "conv", "top") == "LLLLCC"
    assert plan_by_count(2, 2, "ffn", "top") == "FF"


@given(strategies.integers(1, 24), strategies.integers(0, 12))
def test_alternate_against_trying_every_start(layers, count):
    """The chosen start leaves the most even margins of all possible starts, with the smaller margin at the bottom."""
    fits = [s for s in range(layers) if s + 2 * (count - 1) < layers] if count else [0]
    if count > (layers + 1) // 2:
        with pytest.raises(InputError, match="room for 0 to"):
            plan_by_count(layers, count, "ffn", "alternate")
        return
    start = min(fits, key=lambda s: abs(s - (layers - (s + 2 * count - 1))))
    expected = [
        "F" if count and i >= start and (i - start) % 2 == 0 and (i - start) // 2 < count else "L"
        for i in range(layers)
    ]
    assert plan_by_count(layers, count, "ffn", "alternate") == "".join(expected)


def test_more_reservoirs_than_fit_or_a_negative_count():
    with pytest.raises(
        InputError, match=r"--reservoir-count 4: 6 layers with --reservoir-placement alternate .* 0 to 3"
    ):
        plan_by_count(6, 4, "ffn", "alternate")
    with pytest.raises(InputError, match="room for 0 to 6"):
        plan_by_count(6, 7, "ffn", "top")
    with pytest.raises(InputError, match="-1"):
        plan_by_count(6, -1, "ffn", "top")


def test_unknown_type_and_placement():
    with pytest.raises(InputError, match="--reservoir-type 'rnn': choose from transformer, ffn, gru, conv"):
        plan_by_count(6, 2, "rnn", "top")
    with pytest.raises(InputError, match="--reservoir-placement 'left': choose from"):
        plan_by_count(6, 2, "ffn", "left")


def test_slots_keep_their_origin_when_pruned():
    assert slots("LTF") == (Slot("L", 0), Slot("T", 1), Slot("F", 2))
    assert slots("LTF", "2,0") == (Slot("L", 0), Slot("F", 2))
    assert [s.frozen for s in slots("LTfFGgCc")] == [False, True, False, True, True, False, True, False]
    assert [s.kind for s in slots("LTfFGgCc")] == [kind_of(letter) for letter in "LLFFGGCC"]


def test_mixing_freezes_no_whole_layer():
    assert [s.frozen for s in slots("MSs")] == [False, False, False]
    assert [s.random for s in slots("LTfMSs")] == [False, True, False, False, True, False]
    assert [s.kind for s in slots("MSs")] == [kind_of(letter) for letter in "MSS"]


@pytest.mark.parametrize(
    "plan, attending", [("2L10M", [0, 1]), ("5M2L5M", [5, 6]), ("L5ML5M", [0, 6]), ("10M2L", [10, 11])]
)
def test_fnets_hybrids(plan, attending):
    """Bottom, middle, mixed and top layouts of two attention layers and ten mixing layers, as in the paper's code."""
    layers = slots(expand(plan, "--reservoir-encoder"))
    assert len(layers) == 12 and [slot.origin for slot in layers if slot.letter == "L"] == attending


@pytest.mark.parametrize("keep", ["3", "0,x", "-1", "0,,1", "0,0", "1,2,1", "9" * 5000])
def test_slots_to_keep_must_exist_and_differ(keep):
    with pytest.raises(InputError, match="--encoder-layers-to-keep .* between 0 and 2 without repeats"):
        slots("LTF", keep)
