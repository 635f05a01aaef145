"""Freezing saves exactly the weight-gradient products of frozen tensors.

A product of (tokens, in) with (in, out) counts 2 * tokens * in * out. Its gradients with respect to weight and input cost the
same. Sizes are width 8, feed-forward 12, 2 heads, kernel 3. The source has 2 x 5 = 10 tokens, the target 2 x 4 = 8.
All numbers below are sums of 2 * tokens * in * out.
"""

import functools

import pytest
from hypothesis import given, reject, settings, strategies as st
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import cross_entropy
from torch.utils.flop_counter import FlopCounterMode

from fairseq_reservoir.errors import InputError
from fairseq_reservoir.layers import BUILDERS
from fairseq_reservoir.layers.own_kinds import WHOLE, FeedForward, Kind, register_kind
from fairseq_reservoir.plan import kinds
from fairseq_reservoir.plan.kinds import kind_of
from tests.support.building import build, build_lm, build_roberta, build_supermask, loss, pad, sentences
from tests.support.letters import LETTERS, RESERVOIRS, everywhere, named

SOURCE, TARGET = 10, 8
FEED_FORWARD = 8 * 12 + 12 * 8
ATTENTION = 4 * 8 * 8
GRU = 2 * (12 * 8 + 12 * 4)  # two directions, three gates of width 4, from the input and from the state
CONVOLUTION = 16 * 8 + 2 * 3 * 8 + 8 * 8  # to the two halves of the GLU, the kernel of each head, the output


@functools.cache
def backward_flops(encoder, decoder, **options):
    """FLOPs of the whole backward pass."""
    model = build(encoder, decoder, reservoir_kernel_sizes="3", **options)
    with sdpa_kernel(SDPBackend.MATH):
        value = loss(model, pad(sentences(5, 5)), pad(sentences(4, 4, seed=2)))
        with FlopCounterMode(display=False) as counter:
            value.backward()
    return counter.get_total_flops()


@pytest.mark.parametrize(
    "frozen, trained, weights",
    [
        ("T", "L", ATTENTION + FEED_FORWARD),
        ("F", "f", FEED_FORWARD),
        ("G", "g", GRU),
        ("C", "c", CONVOLUTION + FEED_FORWARD),
    ],
)
def test_encoder_saves_the_weight_gradients(frozen, trained, weights):
    saved = backward_flops(f"L{trained}L", "L") - backward_flops(f"L{frozen}L", "L")
    assert saved == 2 * SOURCE * weights


@pytest.mark.parametrize(
    "frozen, trained, at_target, at_source",
    [
        # Keys and values of the attention to the source are computed from source tokens.
        ("T", "L", ATTENTION + ATTENTION // 2 + FEED_FORWARD, ATTENTION // 2),
        ("F", "f", FEED_FORWARD, 0),
        ("G", "g", 2 * 24 * 8, 0),  # three gates of width 8, from the input and from the state
        ("C", "c", CONVOLUTION + FEED_FORWARD, 0),
    ],
)
def test_decoder_saves_the_weight_gradients(frozen, trained, at_target, at_source):
    saved = backward_flops("L", f"L{trained}L") - backward_flops("L", f"L{frozen}L")
    assert saved == 2 * TARGET * at_target + 2 * SOURCE * at_source


def test_static_mixing_saves_the_gradient_of_its_weights():
    """A product of gradients and values for each head, 5 by 5 for each of 2 sentences: 2 * 5 * 5 * 2 * 4 for each of 2 heads."""
    assert backward_flops("LsL", "L") - backward_flops("LSL", "L") == 800


def test_numbers_written_out():
    assert 2 * SOURCE * (ATTENTION + FEED_FORWARD) == 2 * 10 * (256 + 192) == 8960
    assert 2 * SOURCE * FEED_FORWARD == 2 * 10 * 192 == 3840
    assert 2 * SOURCE * GRU == 2 * 10 * 288 == 5760
    assert 2 * SOURCE * (CONVOLUTION + FEED_FORWARD) == 2 * 10 * (240 + 192) == 8640


@pytest.mark.parametrize("letter", named(RESERVOIRS["encoder"]))
def test_slot_table_counts_the_same(letter):
    table = build(f"L{letter}L", reservoir_kernel_sizes="3").slot_table
    saved = backward_flops(f"L{kind_of(letter).trained_letter}L", "L") - backward_flops(f"L{letter}L", "L")
    assert saved == SOURCE * sum(row.flops for row in table.rows if row.state == "frozen")


class TestFrozenEmbeddings:
    """If nothing below is trained, a stack's backward pass ends at its lowest trained tensor."""

    # One gradient of one product inside the attention: 2 sentences, 2 heads, 5 queries, 5 keys, width 4.
    ATTENTION_PRODUCT = 2 * (2 * 2) * (5 * 5 * 4)

    def test_only_trained_layers_run_backward(self):
        lowest = backward_flops("L", "L", freeze="emb")
        for below in (*RESERVOIRS["encoder"], "TT", "FC"):
            assert backward_flops(f"{below}L", "L", freeze="emb") == lowest

    def test_layers_below_are_not_recomputed(self):
        recomputed = {
            plan: backward_flops(plan, "L", freeze="emb", checkpoint_activations=True) for plan in ("L", "TTTL", "FCL")
        }
        assert set(recomputed.values()) == {recomputed["L"]}
        # The trained layers' forward passes once more, without the gradient of the lowest layer's input: products with weights at
        # 10 source and 8 target tokens, and those inside attention from 5 and 4 queries to 5 and 4 keys.
        encoder = 2 * SOURCE * (ATTENTION + FEED_FORWARD) + 2 * self.ATTENTION_PRODUCT
        decoder = 2 * TARGET * (ATTENTION + ATTENTION // 2 + FEED_FORWARD) + 2 * SOURCE * (ATTENTION // 2)
        decoder += 2 * 2 * (2 * 2) * (4 * 4 + 4 * 5) * 4
        assert recomputed["L"] - backward_flops("L", "L", freeze="emb") == encoder + decoder
        assert backward_flops("L", "FL", freeze="emb", checkpoint_activations=True) == recomputed["L"]

    def test_lowest_layer_makes_no_gradient_of_its_input(self):
        extra = backward_flops("TLL", "L", freeze="emb") - backward_flops("TL", "L", freeze="emb")
        # With a second trained layer: gradients of all its weights and of all their inputs.
        assert extra == 2 * (2 * SOURCE) * (ATTENTION + FEED_FORWARD) + 4 * self.ATTENTION_PRODUCT
        cut = backward_flops("TL", "L") - backward_flops("TL", "L", freeze="encoder.emb")
        # With trained embeddings: the gradients of the inputs of T's products, and those of q, k and v of L.
        gone = (ATTENTION + FEED_FORWARD) + 3 * 8 * 8
        assert cut == 2 * SOURCE * gone + 4 * self.ATTENTION_PRODUCT

    def test_decoder(self):
        lowest = backward_flops("L", "L", freeze="emb")
        assert backward_flops("L", "FL", freeze="emb") == lowest
        # The encoder is trained, so T passes the gradient through its keys and values, but not through its self-attention and queries.
        keys_and_values = 2 * SOURCE * (2 * 8 * 8)
        # Scores have a gradient only for keys, sums have one for scores and one for values; 4 queries, 5 keys.
        attention = 3 * 2 * (2 * 2) * (4 * 5 * 4)
        output_and_feed_forward = 2 * TARGET * (8 * 8 + FEED_FORWARD)
        # The input of the L above now has a gradient.
        queries_keys_values_above = 2 * TARGET * (3 * 8 * 8)
        through = keys_and_values + attention + output_and_feed_forward + queries_keys_values_above
        assert backward_flops("L", "TL", freeze="emb") == lowest + through


@pytest.mark.parametrize(
    "one, other",
    [
        (("LLL", {}), ("LTL", {})),
        (("LFL", {}), ("LfL", {})),
        (("FL", {}), ("FL", {"freeze": "encoder.emb"})),
        (("LL", {"freeze": "encoder.ffn"}), ("LL", {"freeze": "encoder.att"})),
        (("LL", {"freeze": "encoder.emb,encoder.layers.0.q,encoder.layers.0.k"}), ("LL", {"freeze": "encoder.emb"})),
        (("LL", {"freeze": "encoder.emb"}), ("LL", {})),
        (("TFL", {"freeze": "encoder.emb", "rezero": True}), ("TL", {"freeze": "encoder.emb", "rezero": True})),
    ],
)
def test_backward_flops_of_the_slot_table_differ_as_the_counted_ones(one, other):
    """All tokens are source tokens here. Attention's own products are the same in both models of a pair."""
    (plan, flags), (plan2, flags2) = one, other
    said = [build(p, "L", **f).slot_table.backward_flops for p, f in (one, other)]
    assert SOURCE * (said[0] - said[1]) == backward_flops(plan, "L", **flags) - backward_flops(plan2, "L", **flags2)


def test_nothing_is_saved_where_everything_is_trained():
    table = build("LL", "L", freeze=None).slot_table
    # All except the input gradients of the lowest products, which have none, because only embeddings are trained below.
    assert table.backward_flops == 2 * table.flops
    assert "backward" in str(table).splitlines()[-1] and " 0.00% less" in str(table)


def counted(model):
    """FLOPs per token (forward, backward) counted by torch: those that grow linearly with the number of tokens.

    Sentences of n tokens cost c + n w + n^2 a. From the costs f(2), f(3) and f(4), a is half the second difference, and
    w = f(3) - f(2) - 5 a. Attention's own products are in a. Work per update or per sentence is in c.
    """
    costs = [_of_one_sentence(model, n) for n in (2, 3, 4)]
    per_token = []
    for two, three, four in zip(*costs):
        twice_a = four - 2 * three + two
        per_token.append((2 * (three - two) - 5 * twice_a) // 2)
    return tuple(per_token)


def _of_one_sentence(model, length):
    source, target = pad(sentences(length)), pad(sentences(length, seed=2))
    with sdpa_kernel(SDPBackend.MATH):
        with FlopCounterMode(display=False) as forward:
            if hasattr(model, "encoder") and hasattr(model, "decoder"):
                value = loss(model, source, target)
            else:
                value = cross_entropy(model(source)[0].flatten(0, 1), target.flatten(), reduction="sum")
        with FlopCounterMode(display=False) as backward:
            if value.requires_grad:
                value.backward()
    return forward.get_total_flops(), backward.get_total_flops()


def said(model):
    return model.slot_table.flops, model.slot_table.backward_flops


TIED = {"share_decoder_input_output_embed": True}
ALL_TIED = {"share_all_embeddings": True}
PRE_NORM = {"encoder_normalize_before": True, "decoder_normalize_before": True}
BOTH = {"cross_self_attention": True, "no_cross_attention": True}
# Width 8 and feed-forward 12: adapters of rank 1 are separate products (3 * 1 * 16 < 64), those of rank 2 are not (3 * 2 * 20 > 96).
LORA, MERGED_LORA, VERA = (
    {"frozen_adapter": kind, "frozen_adapter_rank": rank} for kind, rank in (("lora", 1), ("lora", 2), ("vera", 1))
)
MODELS = {
    "all tied": lambda: build("LFL", "LL", **ALL_TIED),
    "only the decoder frozen": lambda: build("LL", "LL", freeze="decoder"),
    "only the decoder frozen, all tied": lambda: build("LL", "LL", freeze="decoder", **ALL_TIED),
    "keys and values of source and target": lambda: build("LL", "LL", **BOTH),
    "the same, the encoder frozen": lambda: build("LL", "LL", freeze="encoder,emb", **BOTH),
    "only the encoder frozen": lambda: build("LL", "LL", freeze="encoder,emb", **PRE_NORM),
    "biases alone, post-norm": lambda: build("LFGCS", "LC", freeze_except="bias", reservoir_kernel_sizes="3"),
    "biases alone, pre-norm": lambda: build(
        "LfgcM", "Ls", freeze_except="bias", reservoir_kernel_sizes="3", **PRE_NORM
    ),
    "LoRA beside attention": lambda: build("LL", "LL", freeze="att", **LORA),
    "LoRA beside all": lambda: build("LT", "TL", freeze="emb", **LORA, **TIED),
    "LoRA added to its matrices": lambda: build("LT", "LT", **MERGED_LORA),
    "VeRA": lambda: build("TF", "TL", freeze="encoder.emb", **VERA, **ALL_TIED),
    "no cross-attention": lambda: build("LT", "LL", no_cross_attention=True),
    "masks": lambda: build_supermask(),
    "random masks": lambda: build_supermask(mask_random=True),
    "random masks, trained embeddings": lambda: build_supermask(mask_random=True, mask_embeddings="trained"),
    "random masks with a trained factor of each row": lambda: build_supermask(mask_random=True, mask_row_gain=True),
    "half of each mask pinned": lambda: build_supermask(mask_pin=0.5),
    "masks, LayerNorms alone": lambda: build_supermask(freeze="att,ffn,emb", mask_layernorm="affine"),
    "trained weights, rounded, one layer for all depths": lambda: build_supermask(mask_trained_weights="sign"),
    "trained weights, rounded, each layer its own": lambda: build_supermask(
        mask_trained_weights="4", mask_share="none", freeze="encoder.ffn"
    ),
    "language model": lambda: build_lm(plan="LTS", **TIED),
    "language model of masks": lambda: build_lm("supermask_one_layer_transformer_lm", mask_pin=0.5),
    "RoBERTa": lambda: build_roberta("reservoir_roberta", reservoir_encoder="LTF", freeze="pos,emb"),
    "RoBERTa of masks": lambda: build_roberta(),
    "RoBERTa of trained weights, rounded": lambda: build_roberta(mask_trained_weights="ternary"),
    "RoBERTa of random masks": lambda: build_roberta(mask_random=True, untie_weights_roberta=True),
}


# The other models of the table combine or extend these.
SLOW = {
    "all tied",
    "only the decoder frozen",
    "keys and values of source and target",
    "only the encoder frozen",
    "LoRA beside attention",
    "masks",
    "random masks",
    "random masks, trained embeddings",
    "trained weights, rounded, one layer for all depths",
    "language model",
    "language model of masks",
    "RoBERTa of masks",
    "RoBERTa of trained weights, rounded",
    "biases alone, post-norm",
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in MODELS])
def test_the_table_equals_torchs_count(name):
    model = MODELS[name]()
    assert said(model) == counted(model)


@pytest.mark.parametrize("stack, letter", everywhere(LETTERS))
def test_a_gain_is_used_after_the_first_sublayer(stack, letter):
    """With frozen embeddings, the backward pass of the lowest layer ends at its gain, which multiplies the first sublayer's output."""
    options = {"encoder": "L", "decoder": "L", "freeze": "emb", "rezero": True, "reservoir_kernel_sizes": "3"}
    model = build(**options | {stack: f"{letter}L"})
    assert said(model) == counted(model)


def test_a_gain_of_a_users_kind(monkeypatch):
    monkeypatch.setattr(kinds, "_BY_LETTER", dict(kinds._BY_LETTER))
    monkeypatch.setitem(BUILDERS, "Q", None)  # removed again after the test
    about = {"name": "two feed-forward blocks", "about": "for this test", "sees_source": False, "own_norm": True}
    register_kind(
        Kind(frozen_letter="Q", trained_letter="q", freezes=WHOLE, **about),
        lambda config, stack: {"unit": FeedForward(config), "other": FeedForward(config)},
    )
    model = build_lm(plan="QL", freeze="emb", rezero=True)
    assert said(model) == counted(model)


def specs(components):
    return st.none() | st.lists(st.sampled_from(components), min_size=1, max_size=3, unique=True).map(",".join)


COMPONENTS = "att self_att.q cross_att.k cross_att o ffn fc1 fc2 ln emb out pos bias mix".split()
PLACES = "encoder decoder encoder.emb encoder.ffn decoder.att encoder.layers.0 decoder.layers.0.ffn".split()
SPECS = specs(COMPONENTS + PLACES)
FLAG = st.booleans()
LAYERS = {
    "freeze": SPECS,
    "freeze_except": SPECS,
    "reservoir_train_layernorm": FLAG,
    "adapter": st.sampled_from([{}, LORA, MERGED_LORA, VERA]),
}
MASKS = {
    "freeze": SPECS,
    "mask_share": st.sampled_from(["layer", "none"]),
    "mask_pin": st.sampled_from([0.0, 0.5]),
    "mask_random": FLAG,
    "mask_embeddings": st.sampled_from(["masked", "frozen", "trained", "8"]),
    "mask_layernorm": st.sampled_from(["plain", "affine"]),
}
NORMS = {f"{stack}_normalize_before": FLAG for stack in ("encoder", "decoder")}
POSITIONS = {f"{stack}_learned_pos": FLAG for stack in ("encoder", "decoder")}
TRANSLATION = {"ties": st.sampled_from([{}, TIED, ALL_TIED]), "layernorm_embedding": FLAG, **NORMS, **POSITIONS}
LANGUAGE_MODEL = {
    "share_decoder_input_output_embed": FLAG,
    "decoder_normalize_before": FLAG,
    "decoder_learned_pos": FLAG,
    "decoder_input_dim": st.just(8),
}
ROBERTA = {"untie_weights_roberta": FLAG, "encoder_normalize_before": FLAG}


def plan(letters, most):
    return st.lists(st.sampled_from(letters), min_size=1, max_size=most).map("".join)


ENCODER = plan("".join(LETTERS["encoder"]), 3)
ANY_MODEL = st.one_of(
    *(st.tuples(st.just(function), st.fixed_dictionaries(options)) for function, options in (
        (build, {"encoder": ENCODER, "decoder": plan("".join(LETTERS["decoder"]), 2), **LAYERS, **TRANSLATION}),
        (build_supermask, MASKS | TRANSLATION),
        (build_lm, {"plan": plan("".join(LETTERS["decoder"]), 3), **LAYERS, **LANGUAGE_MODEL}),
        (build_lm, {"arch": st.just("supermask_one_layer_transformer_lm"), **MASKS, **LANGUAGE_MODEL}),
        (build_roberta, {"arch": st.just("reservoir_roberta"), "reservoir_encoder": ENCODER, **LAYERS, **ROBERTA}),
        (build_roberta, MASKS | ROBERTA),
    ))
)  # fmt: skip


@pytest.mark.parametrize("examples", [10, pytest.param(60, marks=pytest.mark.slow)])
def test_the_table_of_any_model_equals_torchs_count(examples):
    settings(max_examples=examples, deadline=None, derandomize=True)(given(ANY_MODEL)(check_the_table))()


def check_the_table(drawn):
    function, options = drawn
    grouped = {name: value for name in ("adapter", "ties") for name, value in options.get(name, {}).items()}
    options = {name: value for name, value in options.items() if name not in ("adapter", "ties")} | grouped
    if function is build:
        options["reservoir_kernel_sizes"] = "3"
    try:
        model = function(**options)
    except InputError:
        reject()  # a spec that matches or freezes nothing or everything; an adapter without a frozen matrix
    assert said(model) == counted(model)
