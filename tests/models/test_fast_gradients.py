"""Gradients of all models with ``--fast`` equal those without it."""

import copy
from types import SimpleNamespace

import pytest
import torch
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from hypothesis import given, settings, strategies as st

from fairseq_reservoir.speed import fast
from fairseq_reservoir.speed.loss_decoder import LossDecoder
from tests.support.building import (
    PAD,
    build,
    build_lm,
    build_supermask,
    dictionary,
    pad,
    sentences,
    shift,
)
from tests.support.letters import LETTERS

FLAG = st.booleans()
TIES = st.sampled_from([{}, {"share_decoder_input_output_embed": True}, {"share_all_embeddings": True}])
NORMS = {"encoder_normalize_before": FLAG, "decoder_normalize_before": FLAG}


def plan(letters, most):
    return st.lists(st.sampled_from(letters), min_size=1, max_size=most).map("".join)


# One layer of a decoder must see the source, and --freeze encoder.att needs attention in the encoder.
PLANS = {
    "encoder": plan(LETTERS["encoder"], 2).map("{}L".format),
    "decoder": plan(LETTERS["decoder"], 1).map("L{}".format),
}
FREEZE = st.sampled_from([None, "emb", "encoder.att", "decoder.q", "cross_att.k", "out", "ffn"])
ANY_MODEL = st.one_of(
    st.tuples(st.just(build), st.fixed_dictionaries({**PLANS, **NORMS, "freeze": FREEZE, "ties": TIES})),
    st.tuples(
        st.just(build_supermask),
        st.fixed_dictionaries({**NORMS, "mask_embeddings": st.sampled_from(["masked", "trained"])}),
    ),
    st.tuples(
        st.just(build_lm),
        st.fixed_dictionaries({"plan": plan(LETTERS["decoder"], 2), "share_decoder_input_output_embed": FLAG}),
    ),
)
LENGTHS = st.lists(st.integers(1, 7), min_size=1, max_size=4)


def gradients(model, criterion, sample):
    loss, _, log = criterion(model, sample)
    loss.backward()
    return loss.item(), log["nll_loss"].item(), {name: p.grad for name, p in model.named_parameters()}


def criterion():
    return LabelSmoothedCrossEntropyCriterion(SimpleNamespace(target_dictionary=dictionary(20)), False, 0.1)


def sample_of(lengths, is_translation, seed):
    target = pad(sentences(*lengths, seed=seed))
    words = {"prev_output_tokens": shift(target), "src_tokens": pad(sentences(*lengths[::-1], seed=seed + 1), "left")}
    words = words if is_translation else {"src_tokens": shift(target)}
    return {"net_input": {**words, "src_lengths": None}, "target": target, "ntokens": int(target.ne(PAD).sum())}


@settings(max_examples=20, deadline=None, derandomize=True)
@given(ANY_MODEL, LENGTHS, st.integers(1, 1000))
def test_gradients_of_any_model(drawn, lengths, seed):
    function, options = drawn
    options = options | options.get("ties", {})
    options.pop("ties", None)
    slow = function(**options).train()
    quick, ours = copy.deepcopy(slow), criterion()
    ours = fast.use(quick, ours)
    assert isinstance(quick.decoder, LossDecoder)
    sample = sample_of(lengths, function is not build_lm, seed)
    expected, found = gradients(slow, criterion(), sample), gradients(quick, ours, sample)
    assert found[:2] == pytest.approx(expected[:2], rel=1e-5)
    for name, one in expected[2].items():
        other = found[2][name]
        assert (other is None) == (one is None), name
        assert one is None or (one - other).norm() <= 1e-4 * (1 + one.norm()), name


def test_padding_is_not_projected():
    model, ours = build("L", "L").train(), criterion()
    ours = fast.use(model, ours)
    model.decoder.is_product, rows = False, []
    model.decoder.output_projection.register_forward_pre_hook(lambda _, inputs: rows.append(len(inputs[0])))
    sample = sample_of([3, 6, 4], True, 1)
    ours(model, sample)
    assert rows == [3 + 6 + 4] and sample["target"].numel() == 18
    assert torch.is_tensor(model(**sample["net_input"])[0])  # logits for all other callers
