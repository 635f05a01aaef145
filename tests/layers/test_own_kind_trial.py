"""Check of a user's own kind before training: each mistake gives one line, and a correct layer is returned unchanged."""

import sys
import types
from dataclasses import replace

import pytest
import torch
from fairseq.incremental_decoding_utils import with_incremental_state
from torch import nn

from fairseq_reservoir.errors import InputError
from fairseq_reservoir.layers.base import BUILDERS, Sublayer, register
from fairseq_reservoir.layers.own_kind_trial import build_own
from fairseq_reservoir.plan.kinds import WHOLE, Kind
from tests.support.building import slot_config

KIND = Kind(
    frozen_letter="Q",
    trained_letter="q",
    name="mean of words",
    about="for these tests",
    freezes=WHOLE,
    sees_source=False,
    own_norm=True,
    registered_by="mine",
)


class Mean(Sublayer):
    """f(x)_t is the mean of all tokens that token t may see."""

    def transform(self, x, context):
        return x.mean(0, keepdim=True).expand_as(x)


class MeanWithoutPadding(Sublayer):
    def transform(self, x, context):
        kept = torch.ones(x.shape[:2]) if context.padding_mask is None else (~context.padding_mask).float().T
        return ((x * kept[..., None]).sum(0, keepdim=True) / kept.sum(0)[:, None]).expand_as(x)


class OneWay(Sublayer):
    """Reads from left to right, including padding on the left."""

    def __init__(self, config):
        super().__init__(config)
        self.gru = nn.GRU(config.embed_dim, config.embed_dim)

    def transform(self, x, context):
        return self.gru(x)[0]


class Rezero(Sublayer):
    def __init__(self, config):
        super().__init__(config)
        self.alpha = nn.Parameter(torch.zeros(1))

    def transform(self, x, context):
        return x + self.alpha * context.memory.mean()


class MeanSoFar(Sublayer):
    def transform(self, x, context):
        return x.cumsum(0) / torch.arange(1, len(x) + 1)[:, None, None]


@with_incremental_state
class MeanSoFarWordByWord(Sublayer):
    def transform(self, x, context):
        if context.incremental_state is None:
            return x.cumsum(0) / torch.arange(1, len(x) + 1)[:, None, None]
        kept = self.get_incremental_state(context.incremental_state, "kept") or {
            "sum": torch.zeros_like(x),
            "n": torch.zeros(1),
        }
        kept = {"sum": kept["sum"] + x, "n": kept["n"] + 1}
        self.set_incremental_state(context.incremental_state, "kept", kept)
        return kept["sum"] / kept["n"]

    def reorder_incremental_state(self, incremental_state, new_order):
        kept = self.get_incremental_state(incremental_state, "kept")
        self.set_incremental_state(incremental_state, "kept", {**kept, "sum": kept["sum"][:, new_order]})


class NeverReordered(MeanSoFarWordByWord):
    def reorder_incremental_state(self, incremental_state, new_order):
        pass


class Sound(Sublayer):
    def transform(self, x, context):
        return 2 * x


class Dropping(Sublayer):
    def transform(self, x, context):
        return nn.functional.dropout(x)


class Endless(Sublayer):
    def transform(self, x, context):
        return x / (x - x)


class ReadsSource(Sublayer):
    def transform(self, x, context):
        return x + context.memory.mean()


class Narrow(Sublayer):
    def transform(self, x, context):
        return nn.functional.pad(x, (0, 1))


def built(builder, stack, monkeypatch, **sizes):
    monkeypatch.setitem(BUILDERS, "Q", builder)
    return build_own(KIND, stack, slot_config(norm_first=True, dropout=0.5, **sizes))


@pytest.mark.parametrize("layer, stack, message", [
    (Sublayer, "encoder", "NotImplementedError: Sublayer"),
    (Narrow, "encoder", "RuntimeError: The size of tensor a"),
    (Mean, "encoder", "padding changes the outputs of tokens; use context.padding_mask"),
    (OneWay, "encoder", "padding changes the outputs of tokens; use context.padding_mask"),
    (MeanWithoutPadding, "decoder", "the outputs depend on later tokens; set refused={'decoder': 'it reads later tokens'} in the Kind"),
    (MeanSoFar, "decoder", "the outputs for one token at a time differ from the outputs for the whole sentence"),
    (NeverReordered, "decoder", "the outputs are wrong after beam search has reordered the sentences; define reorder_incremental_state"),
    (Dropping, "encoder", "a second call in evaluation mode returns different outputs"),
    (Dropping, "decoder", "a second call in evaluation mode returns different outputs"),
    (Endless, "encoder", "returned infinite values or NaN"),
    (ReadsSource, "decoder", "the outputs depend on the source; set sees_source=True in the Kind"),
])  # fmt: skip
def test_mistakes_of_a_layer(layer, stack, message, monkeypatch):
    with pytest.raises(InputError) as refusal:
        built(lambda config, stack: {"part": layer(config)}, stack, monkeypatch)
    line = str(refusal.value)
    assert line.startswith("layer Q (mean of words) of mine, in a") and message in line and "\n" not in line


@pytest.mark.parametrize("builder, message", [
    (lambda config, stack: [Mean(config)], "TypeError: the builder returned [Mean("),
    (lambda config, stack: {"part": nn.Linear(2, 2)}, "must return a dict of Sublayers by name"),
    (lambda config: {}, "takes 1 positional argument but 2 were given"),
    (lambda config, stack: {"part": config.width}, "no attribute 'width'"),
])  # fmt: skip
def test_mistakes_of_a_builder(builder, message, monkeypatch):
    with pytest.raises(InputError) as refusal:
        built(builder, "encoder", monkeypatch)
    assert message in str(refusal.value) and "\n" not in str(refusal.value)


@pytest.mark.parametrize("file", ["mine.py", "mine/__init__.py", "mine/layers.py"])
def test_an_error_in_the_users_code_has_its_line(file, tmp_path, monkeypatch):
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    module = types.ModuleType("mine")
    if path.parent != tmp_path:
        module.__path__ = [str(path.parent)]
    module.__file__ = str(path)
    monkeypatch.setitem(sys.modules, "mine", module)
    code = "def build(config, stack):\n    import torch\n    return torch.nn.Linear('x', 2)\n"
    names = {}
    exec(compile(code, str(path), "exec"), names)
    with pytest.raises(InputError, match=rf"TypeError: .* \({path.name}, line 3\)$"):
        built(names["build"], "encoder", monkeypatch)


@pytest.mark.parametrize("layer, stack", [(MeanWithoutPadding, "encoder"), (MeanSoFarWordByWord, "decoder")])
def test_a_sound_layer_is_left_as_it_is_built(layer, stack, monkeypatch):
    torch.manual_seed(1)
    found = built(lambda config, stack: {"part": layer(config), "again": layer(config)}, stack, monkeypatch)
    assert found.training and all(parameter.grad is None for parameter in found.parameters())
    after = torch.rand(1)
    torch.manual_seed(1)
    monkeypatch.setattr("fairseq_reservoir.layers.own_kind_trial._try", lambda *arguments: None)
    built(lambda config, stack: {"part": layer(config), "again": layer(config)}, stack, monkeypatch)
    assert torch.equal(after, torch.rand(1))


def test_a_row_with_sees_source(monkeypatch):
    monkeypatch.setattr(sys.modules[__name__], "KIND", replace(KIND, sees_source=True))
    for sees in (ReadsSource, Rezero):
        built(lambda config, stack, sees=sees: {"part": sees(config)}, "decoder", monkeypatch)
    with pytest.raises(
        InputError,
        match="the outputs do not depend on the source; set sees_source=False in the Kind",
    ):
        built(lambda config, stack: {"part": Sound(config)}, "decoder", monkeypatch)
    built(lambda config, stack: {"part": Sound(config)}, "decoder", monkeypatch, memory_dim=0)


def test_without_values_another_layer_is_tried(monkeypatch):
    """As in ``fairseq-reservoir plan``."""
    with torch.device("meta"):
        assert built(
            lambda config, stack: {"part": MeanWithoutPadding(config)}, "encoder", monkeypatch
        ).part.layer_norm.weight.is_meta
        with pytest.raises(InputError, match="padding changes the outputs of tokens"):
            built(lambda config, stack: {"part": Mean(config)}, "encoder", monkeypatch)


def test_a_letter_of_the_package_cannot_be_registered_again():
    with pytest.raises(ValueError, match="F: already registered by fairseq_reservoir.layers.feed_forward"):
        register("F")(lambda config, stack: {})
