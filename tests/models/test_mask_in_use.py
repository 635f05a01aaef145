"""After any sequence of operations on a model, every weight in use is masked by the current scores."""

import copy
from fractions import Fraction

import pytest
import torch
from fairseq.optim.adam import Adam
from hypothesis import given, settings, strategies as st

from fairseq_reservoir.masks.masked_weight import MaskCache, MaskedWeight, masked_modules
from tests.support.building import build_supermask, loss, pad, sentences
from tests.support.masks_by_sorting import expected_mask, expected_masks_together

SOURCE, TARGET = pad(sentences(3, 2)), pad(sentences(2, 3, seed=2))
# From 1 at update 0 to 0.5 at update 4, then to 0.3 at update 10.
SCHEDULE = "4:0.5,10:0.3"
MODELS = {
    "plain": {"mask_keep_ratio": 0.3},
    "recomputed": {"mask_keep_ratio": 0.3, "checkpoint_activations": True, "mask_scope": "row"},
    "scheduled": {"mask_keep_ratio": 0.3, "mask_keep_schedule": SCHEDULE},
    "global, scheduled": {"mask_keep_ratio": 0.3, "mask_keep_schedule": SCHEDULE, "mask_scope": "global"},
}


def ratio_at(update):
    """Keep ratio of ``SCHEDULE`` as an exact fraction."""
    if update >= 10:
        return Fraction(3, 10)
    if update >= 4:
        return Fraction(1, 2) - Fraction(1, 5) * Fraction(update - 4, 6)
    return 1 - Fraction(1, 2) * Fraction(update, 4)


class Run:
    """A model driven as by fairseq's trainer, and by its users in between.

    The update number is set before every training batch, and parameters are written through ``p.data``. ``counted`` means with
    update numbers, as in fairseq.
    """

    def __init__(self, kind, counted):
        self.options, self.counted, self.update, self.told = MODELS[kind], counted, 0, 0
        self._sorted = None, [], []
        self.model = build_supermask(encoder_layerdrop=0.5, decoder_layerdrop=0.5, **self.options)
        self.new_optimizer()

    def new_optimizer(self):
        self.optimizer = Adam([p for p in self.model.parameters() if p.requires_grad], lr=0.1)

    def check(self, module, weight):
        """Compare a masked weight just before its use."""
        scope = self.options.get("mask_scope", "tensor")
        keep = ratio_at(self.told) if "mask_keep_schedule" in self.options else self.options["mask_keep_ratio"]
        if scope == "global":
            members = list(masked_modules(self.model).values())
            mask = self.masks_of_all([m.scores for m in members], keep)[members.index(module)]
        else:
            mask = expected_mask(module.scores, keep, scope)
        assert weight.equal(module.frozen_weight * mask)

    def masks_of_all(self, scores, keep):
        """Sort all scores, unless they and the ratio equal those of the last call."""
        known_keep, known_scores, masks = self._sorted
        if keep != known_keep or not all(map(torch.equal, scores, known_scores)):
            masks = expected_masks_together(scores, keep)
            self._sorted = keep, [tensor.detach().clone() for tensor in scores], masks
        return masks

    def start_batch(self):
        self.model.train()
        if self.counted:
            self.model.set_num_updates(self.update)
            self.told = self.update

    def train(self, batches=1):
        for _ in range(batches):
            self.start_batch()
            loss(self.model, SOURCE, TARGET).backward()
        versions = [p._version for p in self.model.parameters()]
        self.optimizer.step()
        assert [
            p._version for p in self.model.parameters()
        ] == versions  # otherwise the cache could use the version counters
        self.optimizer.zero_grad()
        self.update += 1

    def accumulate(self):
        self.train(batches=3)

    def evaluate(self):
        self.model.eval()
        with torch.no_grad():
            loss(self.model, SOURCE, TARGET)

    def train_and_go_on_training(self):
        self.train()
        self.start_batch()

    def load(self):
        state = copy.deepcopy(self.model.state_dict())
        for name, tensor in state.items():
            if name.endswith(".scores"):
                state[name] = torch.randn_like(tensor).round(decimals=1)  # with ties
            elif name.endswith(".num_updates"):
                tensor.fill_(7)
                self.told = 7
        self.model.load_state_dict(state)

    def convert(self):
        self.model.half()
        self.evaluate()
        self.model.float()

    def copy(self):
        self.model = copy.deepcopy(self.model)
        self.new_optimizer()

    def jump(self):
        """Jump to a distant update, earlier or later, as when a run is resumed."""
        self.update = 9 if self.update < 5 else 1
        if self.counted:
            self.start_batch()

    def one_batch_of_no_consequence(self):
        self.start_batch()
        loss(self.model, SOURCE, TARGET)


ACTIONS = [
    name
    for name in vars(Run)
    if not name.startswith("_") and name not in ("new_optimizer", "check", "masks_of_all", "start_batch")
]


@pytest.fixture
def uses(monkeypatch):
    """Compare every use of a masked weight with a mask by sorting. Returns an object with the run to compare and a count."""
    get, checked = MaskedWeight.weight.fget, {"run": None, "uses": 0}

    def compared(module):
        weight = get(module)
        if checked["run"]:
            checked["run"].check(module, weight)
            checked["uses"] += 1
        return weight

    monkeypatch.setattr(MaskedWeight, "weight", property(compared))
    return checked


@pytest.mark.parametrize("kind", MODELS)
def test_every_use_of_a_weight_is_masked_by_the_scores_of_now(uses, kind):
    @settings(max_examples=3 if "global" in kind else 5, deadline=None)  # sort all scores at every use
    @given(st.lists(st.sampled_from(ACTIONS), min_size=2, max_size=6), st.booleans())
    def check(actions, counted):
        uses["run"] = run = Run(kind, counted)
        try:
            for action in actions:
                getattr(run, action)()
            run.evaluate()
        finally:
            uses["run"] = None

    check()
    assert uses["uses"] > 100


def test_a_stale_mask_would_be_noticed(uses, monkeypatch):
    """The same check on a model with a cache that is never notified."""
    uses["run"] = run = Run("plain", counted=True)
    monkeypatch.setattr(MaskCache, "set_num_updates", lambda cache, n: setattr(cache, "num_updates", 0))
    run.train()
    with pytest.raises(AssertionError):
        run.accumulate()
    uses["run"] = None
