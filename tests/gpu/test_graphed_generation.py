"""Beam search in CUDA graphs finds fairseq's hypotheses on the same device, in float32 and in half precision."""

import pytest
import torch

from fairseq_reservoir.speed.generation import generator
from fairseq_reservoir.speed.graph_recorder import GraphRecorder
from tests.support.beam_searches import assert_same, batch, generators, model, use_on_cpu

# Wide enough for half precision, with probabilities that differ clearly.
SIZES = {"encoder_embed_dim": 64, "decoder_embed_dim": 64, "encoder_ffn_embed_dim": 128, "decoder_ffn_embed_dim": 128}
MODELS = {
    "reservoirs": {"decoder": "LFL", "encoder": "LF"},
    "masks": {"arch": "supermask_one_layer_transformer", "encoder_layers": 2, "decoder_layers": 2},
}


def built(name, device, dtype):
    """A model as fairseq-generate prepares it. Masks are folded."""
    found = model(3, sharpness=2.0, **SIZES, **MODELS[name])
    found.make_generation_fast_()
    return found.to(device, dtype)


def on_device(given, device):
    moved = {name: tensor.to(device) for name, tensor in given["net_input"].items()}
    return given | {"net_input": moved}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=["fp32", "fp16"])
def test_same_hypotheses_as_fairseq(device, monkeypatch, name, dtype):
    use_on_cpu(monkeypatch)
    found = built(name, device, dtype)
    theirs, ours = generators(found, beam=5, max_len_a=1.2, max_len_b=20)
    lengths = [[9, 4, 12, 7, 3, 15, 8], [6, 11, 13, 2, 9, 5, 10], [3, 30, 22]][: 1 if device == "cpu" else 3]
    same = total = 0
    for seed, sizes in enumerate(lengths):
        mine, expected = (one.generate([], on_device(batch(sizes, seed), device)) for one in (ours, theirs))
        if dtype == torch.float32:
            assert_same(mine, [[{key: value.cpu() for key, value in one.items()} for one in row] for row in expected])
        for best, other in ((one[0], two[0]) for one, two in zip(mine, expected, strict=True)):
            assert float(best["score"]) == pytest.approx(float(other["score"]), abs=1e-2)
            same += best["tokens"].tolist() == other["tokens"].tolist()
            total += 1
    assert same >= 0.95 * total
    if device == "cuda":
        engine = generator._engines[found][1]
        assert isinstance(engine.recorder, GraphRecorder)  # None after a failed capture
        assert sum(shape.replay is not None for shape in engine.shapes.values()) >= 2


def test_a_graph_is_used_for_later_batches(device, monkeypatch):
    """The second batch of a shape is replayed from its first step on, and the result of an earlier batch does not change it."""
    use_on_cpu(monkeypatch)
    _, ours = generators(built("reservoirs", device, torch.float32), beam=3, max_len_b=12)
    first, second = (batch([5, 9, 7], seed) for seed in (1, 2))
    found = [ours.generate([], on_device(given, device)) for given in (first, second, first)]
    assert_same(found[2], found[0])
    assert found[1][0][0]["tokens"].tolist() != found[0][0][0]["tokens"].tolist()
