"""One step of the beam search, by hand. It has no operation that waits for a device."""

import math

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from fairseq_reservoir.speed.generation.buckets import Sizes
from fairseq_reservoir.speed.generation.decoder_step import DecoderStep
from fairseq_reservoir.speed.generation.search_step import SearchStep, Settings
from fairseq_reservoir.speed.generation.state import new_state
from tests.support.beam_searches import WORDS, model

PAD, EOS, UNK = 1, 2, 3
INF = math.inf


def settings(**changes):
    usual = {"beam_size": 2, "vocab_size": 8, "pad": PAD, "unk": UNK, "eos": EOS, "unk_penalty": 0.0, "min_len": 1}
    return (
        Settings(**usual, temperature=1.0, **changes)
        if not changes
        else Settings(**{**usual, "temperature": 1.0} | changes)
    )


@pytest.fixture
def state():
    """A sentence and a padding row. The last step is 4."""
    found = new_state(Sizes(2, 4, 8), 2, [], "cpu")
    found.begin(sentences=1, token=EOS, last_step=4)
    return found


def logits(*rows):
    """Logits for the given probabilities of tokens. Other tokens share the rest evenly."""
    found = torch.empty(4, 8)
    for row, chances in zip(found, (*rows, *rows), strict=True):
        rest = (1 - sum(chances.values())) / (8 - len(chances))
        row[:] = torch.tensor([math.log(chances.get(token, rest)) for token in range(8)])
    return found


def test_first_step_uses_one_beam_and_no_end(state):
    SearchStep(settings(), "cpu")(state, logits({EOS: 0.5, 4: 0.2, 5: 0.1}, {6: 0.9}))
    assert state.token[0].tolist() == [4, 5] and state.parent[0, 0].tolist() == [0, 0]
    assert state.score[0].exp().tolist() == pytest.approx([0.2, 0.1])
    assert state.step.tolist() == [1] and state.count[0] == 0 and state.unfinished.tolist() == [1]


def test_an_end_among_the_best_is_kept(state):
    step = SearchStep(settings(), "cpu")
    step(state, logits({4: 0.5, 5: 0.25}, {}))
    # Candidates: beam 0 with 6 (0.4), beam 0 with EOS (0.05), beam 1 with 7 (0.0375), beam 1 with 6 (0.025).
    step(state, logits({6: 0.8, EOS: 0.1}, {7: 0.15, 6: 0.1}))
    assert state.token[0].tolist() == [6, 7] and state.parent[1, 0].tolist() == [0, 1]
    assert state.count[0] == 1 and not state.finished[0]
    assert (state.end_step[0, 0], state.end_beam[0, 0]) == (1, 0)
    assert float(state.end_score[0, 0].exp()) == pytest.approx(0.05)


def test_an_end_after_the_best_is_dropped(state):
    step = SearchStep(settings(), "cpu")
    step(state, logits({4: 0.5, 5: 0.25}, {}))
    # The end of sentence of beam 0 is the third candidate. The first two are not ends.
    step(state, logits({6: 0.5, 7: 0.3, EOS: 0.15}, {}))
    assert state.token[0].tolist() == [6, 7] and state.count[0] == 0


def test_the_last_step_ends_everything(state):
    step = SearchStep(settings(), "cpu")
    state.last_step.fill_(1)
    step(state, logits({4: 0.5, 5: 0.25}, {}))
    step(state, logits({6: 0.9}, {6: 0.9}))
    assert state.count[0] == 2 and state.finished.all() and state.unfinished.tolist() == [0]
    assert state.end_beam[0, :2].tolist() == [0, 1] and state.end_step[0, :2].tolist() == [1, 1]


def test_penalty_of_unknown_words_and_suppressed_tokens(state):
    step = SearchStep(settings(unk_penalty=1.0, suppressed=(4,)), "cpu")
    step(state, logits({UNK: 0.3, 4: 0.3, 5: 0.2}, {}))
    assert state.token[0].tolist() == [5, UNK]
    assert float(state.score[0, 1]) == pytest.approx(math.log(0.3) - 1)


def test_nan_is_never_chosen(state):
    given = logits({5: 0.2, 6: 0.1}, {})
    given[1] = math.nan
    step = SearchStep(settings(), "cpu")
    step(state, given)
    step(state, given)
    assert state.parent[1, 0].tolist() == [0, 0]


class Operations(TorchDispatchMode):
    """Names of all operations, and the numbers of devices of their tensors."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


# Operations that wait for the device, because the host reads a value or a size. scalar_tensor copies a number from the host.
_WAITS = {
    "_local_scalar_dense",
    "nonzero",
    "masked_select",
    "_unique2",
    "index",
    "index_put_",
    "scalar_tensor",
    "equal",
}


@pytest.mark.parametrize("plan", ["LL", "LFL"])
def test_a_step_never_waits(plan):
    found = model(1, decoder=plan)
    decoder_step = DecoderStep(found.decoder)
    search_step = SearchStep(settings(vocab_size=WORDS), "cpu")
    state = new_state(Sizes(3, 16, 32), 2, decoder_step.new_caches(3, 16, 32, 2), "cpu")
    state.begin(3, EOS, 30)
    with torch.no_grad(), Operations() as operations:
        search_step(state, decoder_step(state))
    assert len(operations.names) > 100 and not _WAITS & set(operations.names)
    assert "lift_fresh" not in operations.names  # made by torch.tensor
