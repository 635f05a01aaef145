"""Freezing leaves out exactly the weight-gradient products of what is frozen, and nothing else.

A product of (tokens, in) with (in, out) counts 2 * tokens * in * out; its gradients with respect to weight and input cost
the same each. Sizes are width 8, feed-forward 12, 2 heads, kernel 3; the source has 2 x 5 = 10 tokens, the target
2 x 4 = 8, so the numbers below are all sums of 2 * tokens * in * out.
"""

import pytest
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from fairseq_reservoir.plan.kinds import kind_of
from tests.support.building import build, loss, pad, sentences
from tests.support.letters import RESERVOIRS, named

SOURCE, TARGET = 10, 8
FEED_FORWARD = 8 * 12 + 12 * 8
ATTENTION = 4 * 8 * 8
GRU = 2 * (12 * 8 + 12 * 4)  # two directions, three gates of width 4, from the input and from the state
CONVOLUTION = 16 * 8 + 2 * 3 * 8 + 8 * 8  # to the two halves of the GLU, the kernel of each head, the output


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
        # Keys and values of the attention to the source are made from source tokens.
        ("T", "L", ATTENTION + ATTENTION // 2 + FEED_FORWARD, ATTENTION // 2),
        ("F", "f", FEED_FORWARD, 0),
        ("C", "c", CONVOLUTION + FEED_FORWARD, 0),
    ],
)
def test_decoder_saves_the_weight_gradients(frozen, trained, at_target, at_source):
    saved = backward_flops("L", f"L{trained}L") - backward_flops("L", f"L{frozen}L")
    assert saved == 2 * TARGET * at_target + 2 * SOURCE * at_source


def test_static_mixing_saves_the_gradient_of_its_weights():
    """A product for each head of gradients and values, 5 by 5 of 2 sentences: 2 * 5 * 5 * 2 * 4 for each of 2 heads."""
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
    assert saved == SOURCE * sum(e.flops for e in table.entries if not e.trained)


class TestFrozenEmbeddings:
    """With nothing trained below, a stack's backward pass ends at its lowest trained tensor."""

    # One gradient of one product inside the attention: 2 sentences, 2 heads, 5 queries, 5 keys, width 4.
    ATTENTION_PRODUCT = 2 * (2 * 2) * (5 * 5 * 4)

    def test_only_trained_layers_run_backward(self):
        lowest = backward_flops("L", "L", freeze="emb")
        for below in (*RESERVOIRS["encoder"], "TT", "FC"):
            assert backward_flops(f"{below}L", "L", freeze="emb") == lowest

    def test_layers_below_are_not_recomputed(self):
        recomputed = {plan: backward_flops(plan, "L", freeze="emb", checkpoint_activations=True) for plan in ("L", "TTTL", "FCL")}
        assert set(recomputed.values()) == {recomputed["L"]}
        # What the trained layers' forward passes cost once more, and no gradient of the lowest one's input: products with
        # weights at 10 source and 8 target tokens, those inside attention from 5 and 4 queries to 5 and 4 keys.
        encoder = 2 * SOURCE * (ATTENTION + FEED_FORWARD) + 2 * self.ATTENTION_PRODUCT
        decoder = 2 * TARGET * (ATTENTION + ATTENTION // 2 + FEED_FORWARD) + 2 * SOURCE * (ATTENTION // 2)
        decoder += 2 * 2 * (2 * 2) * (4 * 4 + 4 * 5) * 4
        assert recomputed["L"] - backward_flops("L", "L", freeze="emb") == encoder + decoder
        assert backward_flops("L", "FL", freeze="emb", checkpoint_activations=True) == recomputed["L"]

    def test_lowest_layer_makes_no_gradient_of_its_input(self):
        extra = backward_flops("TLL", "L", freeze="emb") - backward_flops("TL", "L", freeze="emb")
        # A second trained layer: the gradients of all its weights and of all their inputs.
        assert extra == 2 * (2 * SOURCE) * (ATTENTION + FEED_FORWARD) + 4 * self.ATTENTION_PRODUCT
        cut = backward_flops("TL", "L") - backward_flops("TL", "L", freeze="encoder.emb")
        # Embeddings trained: the gradients of the inputs of T's products, and those of q, k and v of L.
        gone = (ATTENTION + FEED_FORWARD) + 3 * 8 * 8
        assert cut == 2 * SOURCE * gone + 4 * self.ATTENTION_PRODUCT

    def test_decoder(self):
        lowest = backward_flops("L", "L", freeze="emb")
        assert backward_flops("L", "FL", freeze="emb") == lowest
        # The encoder is trained, so T hands the gradient on through its keys and values; its self-attention and its
        # queries do not run backward.
        keys_and_values = 2 * SOURCE * (2 * 8 * 8)
        # Scores have a gradient of the keys only, sums one of the scores and one of the values; 4 queries, 5 keys.
        attention = 3 * 2 * (2 * 2) * (4 * 5 * 4)
        output_and_feed_forward = 2 * TARGET * (8 * 8 + FEED_FORWARD)
        # The L above now has an input with a gradient.
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
    ],
)
def test_backward_flops_of_the_slot_table_differ_as_the_counted_ones(one, other):
    """What is said per token is of source tokens here; attention's own products are the same in both models of a pair."""
    (plan, flags), (plan2, flags2) = one, other
    said = [build(p, "L", **f).slot_table.backward_flops for p, f in (one, other)]
    assert SOURCE * (said[0] - said[1]) == backward_flops(plan, "L", **flags) - backward_flops(plan2, "L", **flags2)


def test_nothing_is_saved_where_everything_is_trained():
    table = build("LL", "L", freeze=None).slot_table
    # All but the input gradients of the lowest products, of which there are none: embeddings are trained below them.
    assert table.backward_flops == 2 * table.flops
    assert "backward" in str(table).splitlines()[-1] and " 0.00% less" in str(table)
