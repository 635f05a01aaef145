"""``GraphedGenerator`` against fairseq's ``SequenceGenerator`` on a CPU in float32, with steps that run without graphs."""

import gc
import logging
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from fairseq_reservoir.options.command_options import GENERATION_GRAPHS
from fairseq_reservoir.speed.generation import generator
from fairseq_reservoir.speed.generation.engine import Engine
from tests.support import building
from tests.support.beam_searches import WORDS, assert_same, batch, generators, model, use_on_cpu

SIZES = {
    "encoder_embed_dim": 8,
    "encoder_ffn_embed_dim": 12,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
}
LAYERS = {"encoder_layers": 2, "decoder_layers": 2}


@pytest.fixture(autouse=True)
def _on_cpu(monkeypatch, caplog):
    use_on_cpu(monkeypatch)
    caplog.set_level(logging.INFO, "fairseq_reservoir")


def compare(found, beam, caplog, **options):
    theirs, ours = generators(found, beam, **options)
    for number, lengths in enumerate(([5, 2, 9], [7], [3, 3, 12, 1, 6, 20, 2])):
        given = batch(lengths, seed=number, left=number % 2 == 0)
        assert_same(ours.generate([], given), theirs.generate([], given))
    assert "fairseq's own" not in caplog.text


@pytest.mark.parametrize("seed, beam", [(0, 5), (1, 2), (2, 1), (3, 5)])
def test_seeds_and_beams(seed, beam, caplog):
    compare(model(seed), beam, caplog, max_len_a=1, max_len_b=seed % 3 * 10)


@pytest.mark.parametrize(
    "options",
    [
        {"len_penalty": 0.6, "min_len": 3, "max_len_b": 8},
        {"normalize_scores": False, "unk_penalty": 0.5, "max_len_b": 20},
        {"temperature": 1.5, "max_len_b": 9, "tokens_to_suppress": ("w3", "w5")},
        {"min_len": 0, "max_len_a": 0.5, "max_len_b": 40},
        {"len_penalty": -1, "max_len_b": 12},
    ],
)
def test_settings(options, caplog):
    compare(model(2, sharpness=6.0), 3, caplog, **options)


@pytest.mark.parametrize(
    "options",
    [
        {"decoder": "LFTfL", "encoder": "LF"},
        {"decoder": "LF", "decoder_normalize_before": True, "activation_fn": "gelu"},
        {"decoder": "LL", "decoder_learned_pos": True, "layernorm_embedding": True},
        {"decoder": "L", "no_cross_attention": True, "no_scale_embedding": True},
        {"decoder": "L", "no_token_positional_embeddings": True, "share_decoder_input_output_embed": True},
        {"decoder": "TT", "freeze": "ffn", "frozen_adapter": "lora"},
        {"decoder": "LL", "decoder_embed_dim": 12, "decoder_input_dim": 8, "decoder_output_dim": 8},
        {"arch": "frozen_transformer", "freeze": "att", **SIZES, **LAYERS},
    ],
)
def test_models(options, caplog):
    compare(model(3, **options), 4, caplog, max_len_b=15)


@pytest.mark.parametrize("tied", [True, False])
def test_folded_masks(tied, caplog):
    found = building.build(
        arch="supermask_one_layer_transformer",
        words=(WORDS, WORDS),
        **SIZES,
        **LAYERS,
        share_decoder_input_output_embed=tied,
    ).eval()
    found.make_generation_fast_()
    compare(found, 4, caplog, max_len_b=15)


def test_first_token(caplog):
    theirs, ours = generators(model(), 2, max_len_b=9)
    given = batch([4, 6])
    assert_same(ours.generate([], given, bos_token=7), theirs.generate([], given, bos_token=7))


def test_later_batches_of_the_same_shape():
    found = model()
    theirs, ours = generators(found, 3, max_len_b=9)
    for seed in (1, 2, 1):
        given = batch([4, 6], seed)
        assert_same(ours.generate([], given), theirs.generate([], given))


@pytest.mark.parametrize(
    "kwargs, reason",
    [({"prefix_tokens": torch.tensor([[5], [6]])}, "--prefix-size"), ({}, "several models"), ({}, "training mode")],
)
def test_other_batches_are_searched_by_fairseq(kwargs, reason, caplog):
    found = model()
    others = [model(2)] if reason == "several models" else []
    theirs, ours = generators(found, 2, *others, max_len_b=9)
    if reason == "training mode":
        found.train()
    given = batch([4, 6])
    expected, mine = (one.generate([], given, **kwargs) for one in (theirs, ours))
    assert [one["tokens"].tolist() for row in mine for one in row] == [
        one["tokens"].tolist() for row in expected for one in row
    ]
    assert caplog.text.count("--cuda-graphs: fairseq's own search is used") == 1 and reason in caplog.text
    ours.generate([], given, **kwargs)
    assert caplog.text.count("--cuda-graphs") == 1


def test_a_cpu_has_no_effect(monkeypatch, caplog):
    monkeypatch.setenv(GENERATION_GRAPHS, "1")
    theirs, ours = generators(model(), 2, max_len_b=9)
    given = batch([4, 6])
    found = ours.generate([], given)
    assert found[0][0]["attention"].numel()  # fairseq's own search
    assert [record.getMessage() for record in caplog.records] == ["--cuda-graphs: has no effect on the device cpu"]


def test_too_short_limit():
    _, ours = generators(model(), 2, max_len_b=1, min_len=3)
    with pytest.raises(AssertionError, match="min_len cannot be larger"):
        ours.generate([], batch([4]))


def test_too_little_memory(monkeypatch, caplog):
    found = model()
    theirs, ours = generators(found, 2, max_len_b=9)
    given = batch([4, 6])
    ours.generate([], given)

    def fail(*_):
        raise torch.OutOfMemoryError("no memory")

    with monkeypatch.context() as patch:
        patch.setattr(Engine, "search", fail)
        assert_same(ours.generate([], given), theirs.generate([], given))
    assert found not in generator._engines and "a batch needs too much memory" in caplog.text
    assert_same(ours.generate([], given), theirs.generate([], given))


@pytest.mark.parametrize("learned", [True, False])
def test_more_steps_than_positions(learned, caplog):
    """The table has 24 positions. fairseq enlarges a sinusoidal one; one of learned positions ends in an error there too."""
    found = model(ends=0.0, decoder_learned_pos=learned, max_target_positions=24)
    theirs, ours = generators(found, 2, max_len=24, max_len_b=99, min_len=22)
    given = batch([4])
    assert_same(ours.generate([], given), theirs.generate([], given))
    assert not caplog.records
    theirs, ours = generators(found, 2, max_len=30, max_len_b=99, min_len=22)
    if learned:
        with pytest.raises(IndexError):
            ours.generate([], given)
    else:
        assert_same(ours.generate([], given), theirs.generate([], given))
    assert "a translation of 30 tokens is longer than the table of positions" in caplog.text


def test_inference_mode_before_and_after_other_searches():
    theirs, ours = generators(model(), 3, max_len_b=9)
    given = batch([4, 6])
    expected = theirs.generate([], given)
    for inside in (True, False, True):
        with torch.inference_mode(inside):
            assert_same(ours.generate([], given), expected)


def test_threads_with_one_model():
    theirs, ours = generators(model(), 3, max_len_b=20)
    batches = [batch([4, 6, 5], seed) for seed in range(4)]
    expected = [theirs.generate([], given) for given in batches]
    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(lambda given: ours.generate([], given), batches))
    for mine, other in zip(found, expected, strict=True):
        assert_same(mine, other)


def test_a_model_without_users_is_freed():
    found = model()
    generators(found, 2, max_len_b=5)[1].generate([], batch([4]))
    alive = weakref.ref(found)
    del found
    gc.collect()
    assert alive() is None
