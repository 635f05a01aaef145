"""Incremental decoding gives the logits of teacher forcing to 1e-10 in float64, and beams can be reordered."""

import pytest
import torch
from fairseq.sequence_generator import SequenceGenerator

from tests.support.building import build, dictionary, logits, pad, sentences, shift
from tests.support.letters import LETTERS, named

pytestmark = pytest.mark.usefixtures("exact_softmax")
SOURCE = pad(sentences(5, 3, 4), "left")
# Ten tokens: more than the kernels of 3 and 7 below, fewer than that of 15.
TARGET = shift(pad(sentences(10, 10, 10, seed=2)))


@pytest.fixture(params=named(LETTERS["decoder"]))
def model(request):
    letter = request.param
    return build("LF", f"{letter}L{letter}{letter}", reservoir_kernel_sizes="3,7,7,15").double().eval()


def step(model, encoded, state, target, time):
    return model.decoder(target[:, : time + 1], encoder_out=encoded, incremental_state=state)[0][:, 0]


@torch.no_grad()
def test_equals_teacher_forcing(model):
    expected, encoded, state = logits(model, SOURCE, TARGET), model.encoder(SOURCE), {}
    for time in range(TARGET.size(1)):
        assert (step(model, encoded, state, TARGET, time) - expected[:, time]).abs().max() < 1e-10


@torch.no_grad()
def test_a_reordered_cache_is_the_cache_of_the_reordered_batch(model):
    # Two sentences with two beams each. As in beam search, a beam stays within its sentence.
    source, target, order, swap = SOURCE[[0, 0, 1, 1]], TARGET[[0, 1, 2, 0]], torch.tensor([1, 1, 3, 2]), 5
    encoded, state = model.encoder(source), {}
    for time in range(swap):
        step(model, encoded, state, target, time)
    model.decoder.reorder_incremental_state_scripting(state, order)
    encoded = model.encoder.reorder_encoder_out(encoded, order)
    # From here on all four beams differ, even the two with the same beginning.
    target = torch.cat([target[order, :swap], target[:, swap:]], dim=1)
    expected = logits(model, source, target)
    for time in range(swap, target.size(1)):
        assert (step(model, encoded, state, target, time) - expected[:, time]).abs().max() < 1e-10


@torch.no_grad()
def test_later_words_have_no_influence_on_earlier_ones(model):
    other = TARGET.clone()
    other[:, 6:] = 7
    difference = (logits(model, SOURCE, TARGET) - logits(model, SOURCE, other)).abs().amax(dim=(0, 2))
    assert difference[:6].max() == 0 and difference[6:].min() > 0


@torch.no_grad()
def test_beam_search_finds_the_same_with_and_without_the_cache(model):
    def search(incremental):
        generator = SequenceGenerator([model], dictionary(20), beam_size=5, max_len_b=8)
        generator.model.has_incremental = incremental
        found = generator.generate([model], {"net_input": {"src_tokens": SOURCE, "prev_output_tokens": None}})
        return [hypothesis for sentence in found for hypothesis in sentence]

    cached, plain = search(True), search(False)
    assert len(cached) == len(plain) == 15
    for ours, theirs in zip(cached, plain):
        assert ours["tokens"].equal(theirs["tokens"])
        assert (ours["positional_scores"] - theirs["positional_scores"]).abs().max() < 1e-6


@pytest.mark.parametrize("plan, place", [("LF", 0), ("TFF", 0), ("LCF", 1), ("LL", 1)])
@pytest.mark.parametrize("training", [False, True])  # criteria of alignment read it in training
@torch.no_grad()
def test_alignment_is_by_the_last_layer_that_attends_to_the_source(plan, place, training):
    model = build("L", plan).train(training)
    attention = model(SOURCE, None, TARGET)[1]["attn"][0]
    assert attention.shape == (3, TARGET.size(1), SOURCE.size(1))
    expected = model.decoder.extract_features(TARGET, model.encoder(SOURCE), alignment_layer=place)[1]["attn"][0]
    assert attention.equal(expected)
