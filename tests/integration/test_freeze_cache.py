"""``--freeze-cache`` in fairseq's trainer: the same bits with and without it, and one-line errors."""

import logging
import re
from unittest.mock import patch

import pytest
import torch
from fairseq.trainer import Trainer

from fairseq_reservoir.speed.prefix_cache import Memory
from tests.support.commands import error_of, train

# 5 updates per epoch. The second epoch reads the batches cached in the first.
SMALL = "--decoder-layers 1 --batch-size 32 --max-epoch 2 --disable-validation".split()
ENCODER = ["--reservoir-encoder", "LLL", *SMALL, "--freeze", "encoder.emb,encoder.layers.0-1"]
PLAIN = [*ENCODER, "--no-save", "--dropout", "0"]


def assert_same(run, other):
    assert run.losses == other.losses and len(run.losses) > 7
    assert all(run.weights[name].equal(tensor) for name, tensor in other.weights.items())


def hits_of(run):
    """(batches from the cache, all batches) of the last epoch."""
    cache = run.trainer.prefix_cache
    return cache.hits, cache.hits + cache.misses


@pytest.fixture(scope="module")
def without(toy_data):
    return train(toy_data, *PLAIN)


def test_in_memory(toy_data, without, caplog):
    caplog.set_level(logging.INFO)
    run = train(toy_data, *PLAIN, "--freeze-cache", "memory")
    assert_same(run, without)
    assert hits_of(run) == (5, 5)
    assert "--freeze-cache: caches the output of encoder.layers.0-1" in caplog.messages
    assert "--freeze-cache: 0 of 5 batches came from the cache" in caplog.messages  # of epoch 1
    assert "--freeze-cache memory: about 1 MiB when all batches are cached" in caplog.messages


def test_the_logged_size_is_that_of_the_cache(toy_data, caplog):
    caplog.set_level(logging.INFO)
    with patch("fairseq_reservoir.speed.freeze_cache._MIB", 1):  # so that the line is in bytes
        run = train(toy_data, *PLAIN, "--freeze-cache", "memory", "--freeze-cache-mib", 10**6)
    told = re.search(r"about (\d+) MiB", caplog.text)
    assert int(told[1]) == run.trainer.prefix_cache.store.used


def test_a_full_cache(caplog):
    """A tensor that fits exactly is cached. The first that does not is reported."""
    store, x = Memory(16), torch.zeros(2)  # of 8 bytes
    for key in (b"a", b"b"):
        store.put(key, x)
    assert store.used == 16 and not caplog.messages
    for key in (b"c", b"d"):
        store.put(key, x)
    assert store.batches.keys() == {b"a", b"b"} and store.used == 16
    (line,) = caplog.messages
    assert line.startswith("--freeze-cache-mib 0: the cache is full")


@pytest.mark.slow
def test_other_sentences_in_the_batches(toy_data):
    """Batches differ in every epoch: only entries with the same sentences and padding are used."""
    flags = [*PLAIN, "--update-epoch-batch-itr", "True", "--update-ordered-indices-seed", "--max-tokens", 70]
    plain, cached = train(toy_data, *flags), train(toy_data, *flags, "--freeze-cache", "memory")
    assert_same(cached, plain)
    hits, batches = hits_of(cached)
    assert hits < batches


def test_batches_that_never_come_again(toy_data, caplog):
    again = "--freeze-cache: no batch has occurred twice"
    train(toy_data, *PLAIN, "--max-epoch", 3, "--freeze-cache", "memory")
    assert again not in caplog.text
    flags = ["--update-epoch-batch-itr", "True", "--update-ordered-indices-seed", "--max-tokens", 300, "--max-epoch", 4]
    train(toy_data, *PLAIN, *flags, "--freeze-cache", "memory")
    assert caplog.text.count(again) == 1


ARMS = {
    "bf16, accumulated, dropout above": [
        *("--bf16", "--update-freq", 3, "--max-epoch", 4),
        *("--dropout", 0.2, "--attention-dropout", 0.1, "--frozen-prefix-no-dropout"),
    ],
    "fp16": ["--memory-efficient-fp16"],
    "norm first": ["--encoder-normalize-before"],
    "checkpointed": ["--checkpoint-activations"],
    "fast": ["--fast"],
    "moving average": ["--store-ema"],
    "reservoirs": ["--reservoir-encoder", "TFLL", "--freeze", "encoder.emb", "--frozen-dtype", "bf16"],
}


USUAL = ("bf16, accumulated, dropout above", "reservoirs")


@pytest.mark.parametrize("arm", [arm if arm in USUAL else pytest.param(arm, marks=pytest.mark.slow) for arm in ARMS])
def test_the_same_bits(toy_data, arm):
    flags = [*PLAIN, *ARMS[arm]]
    run = train(toy_data, *flags, "--freeze-cache", "memory")
    assert_same(run, train(toy_data, *flags))
    hits, batches = hits_of(run)
    assert hits == batches == 5


@pytest.mark.parametrize("dtype", ["bf16", pytest.param("fp16", marks=pytest.mark.slow)])
def test_rounded_in_every_epoch_alike(toy_data, without, dtype):
    flags = [*PLAIN, "--freeze-cache", "memory", "--freeze-cache-dtype", dtype]
    run = train(toy_data, *flags)
    # Without room in the cache, every batch is computed and rounded in each epoch.
    with patch("fairseq_reservoir.speed.prefix_cache.Memory.put", lambda *put: None):
        assert_same(run, train(toy_data, *flags))
    assert run.losses != without.losses
    assert run.losses == pytest.approx(without.losses, rel=0.05)


def test_validation_goes_past_it(toy_data, without):
    flags = [word for word in PLAIN if word != "--disable-validation"]
    run = train(toy_data, *flags, "--freeze-cache", "memory")
    assert_same(run, without)
    assert hits_of(run) == (5, 5) and len(run.trainer.prefix_cache.store.batches) == 5


def test_a_schedule_freezes_a_prefix(toy_data, tmp_path, caplog):
    """Layer 0 freezes at update 2 and layer 1 at 7, of 15. Resumed in between, the run has the same losses."""
    caplog.set_level(logging.INFO)
    flags = ["--reservoir-encoder", "LLL", *SMALL, "--freeze", "emb", "--dropout", 0.1, "--frozen-prefix-no-dropout"]
    flags += ["--optimizer", "freeze_skip", "--freeze-progressive", "2:5", "--decoder-layers", 3, "--max-epoch", 3]
    plain = train(toy_data, *flags, "--no-save")
    cached = [*flags, "--freeze-cache", "memory", "--no-epoch-checkpoints"]
    run = train(toy_data, *cached, "--save-interval-updates", 6, "--save-dir", tmp_path / "whole")
    assert_same(run, plain)
    said = [message for message in caplog.messages if "caches the output" in message]
    assert said == [f"--freeze-cache: caches the output of encoder.layers.{which}" for which in ("0", "0-1")]
    # In epoch 3 three batches are cached to layer 1, from updates 8 to 10, and the others to layer 0.
    cache = run.trainer.prefix_cache
    assert (cache.hits, cache.grown, cache.misses) == (3, 2, 0)
    begun = ["--restore-file", tmp_path / "whole" / "checkpoint_2_6.pt"]
    rest = train(toy_data, *cached, *begun, "--save-dir", tmp_path / "part")
    assert rest.losses == plain.losses[6:]


def test_a_changed_prefix_ends_the_run(toy_data):
    step = Trainer.train_step

    def train_step(trainer, samples, *args):
        done = step(trainer, samples, *args)
        trainer.get_model().encoder.layers[1].fc1.weight.data[0, 0] += 1
        return done

    with patch.object(Trainer, "train_step", train_step):
        said, _ = error_of(toy_data, *PLAIN, "--freeze-cache", "memory")
    assert "a frozen tensor in encoder.layers.0-1 has changed in this run" in said and said.count("\n") == 1


def test_random_numbers_in_the_prefix_are_seen(toy_data, tmp_path):
    def noisy(layer, x, *args, **kwargs):
        return forward(layer, x + 0.1 * torch.randn_like(x), *args, **kwargs)

    from fairseq.modules.transformer_layer import TransformerEncoderLayerBase

    forward = TransformerEncoderLayerBase.forward
    with patch.object(TransformerEncoderLayerBase, "forward", noisy):
        # fairseq saves crash.pt when an update fails
        said, _ = error_of(toy_data, *PLAIN, "--freeze-cache", "memory", "--save-dir", tmp_path)
    assert "--freeze-cache: encoder.layers.0-1 draws random numbers" in said


REFUSED = {
    "dropout": (["--dropout", 0.1], "encoder.dropout_module and 2 more in the frozen prefix have dropout (0.1)"),
    "trained embeddings": (["--freeze", "encoder.layers.0"], "encoder.embed_tokens.weight is trained"),
    "layerdrop": (["--encoder-layerdrop", 0.1], "--encoder-layerdrop 0.1 drops layers at random"),
    "noise": (
        ["--quant-noise-pq", 0.1, "--quant-noise-pq-block-size", 8, "--freeze", "encoder"],
        "a hook changes encoder.quant_noise before each use; remove the flag that adds this hook, for example --quant-noise-pq",
    ),
    "rotation": (
        ["--optimizer", "freeze_skip", "--freeze-rotate", "1:2"],
        "with --freeze-rotate: the rotation trains different layers in every period, so no layer stays frozen",
    ),
    "type": (["--freeze-cache-dtype", "int8"], "--freeze-cache-dtype 'int8': choose from exact, bf16, fp16"),
    "limit": (["--freeze-cache-mib", 0], "--freeze-cache-mib 0: must be at least 1"),
    "a file": (
        ["--freeze-cache", __file__],
        f"--freeze-cache {__file__}: a cache in a file is no longer supported; give memory",
    ),
    "backskip": (
        ["--reservoir-encoder", "TLL", "--freeze", "emb", "--backskip", "identity"],
        "with --backskip: a frozen prefix has no backward pass to skip",
    ),
    "an encoder of its own": (
        "--arch frozen_lightconv --freeze encoder --encoder-conv-type lightweight --dropout 0".split(),
        "has the encoder LightConvEncoder; the flag needs fairseq's Transformer encoder",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(toy_data, case):
    flags, line = REFUSED[case]
    before = open(__file__).read()
    flags = ["--freeze-cache", "memory", *flags]
    if case == "an encoder of its own":
        flags += "--batch-size 16 --no-save --max-epoch 1".split()
        said, status = error_of(toy_data, *flags, begin=["--cpu", "--optimizer", "adam"])
    else:
        said, status = error_of(toy_data, *PLAIN, *flags)
    assert line in said and said.count("\n") == 1 and status == 2
    assert open(__file__).read() == before


def test_flags_of_a_cache_without_one(toy_data):
    said, _ = error_of(toy_data, *PLAIN, "--freeze-cache-mib", 5)
    assert "--freeze-cache-mib 5: has no effect without --freeze-cache" in said


def test_a_pretrained_encoder_in_fairseqs_own_model(toy_data, tmp_path):
    sizes = (
        "--encoder-embed-dim 16 --encoder-ffn-embed-dim 24 --encoder-layers 2 --decoder-layers 1 --dropout 0".split()
    )
    small = "--cpu --optimizer adam --lr 0.01 --batch-size 32 --num-workers 0 --log-format none --seed 3".split()
    begin = [*small, "--encoder-attention-heads", "2", "--decoder-attention-heads", "2", *sizes]
    train(toy_data, "--arch", "transformer", "--max-epoch", 1, "--save-dir", tmp_path, begin=begin)
    flags = [
        "--arch",
        "frozen_transformer",
        "--freeze",
        "encoder",
        "--max-epoch",
        2,
        "--no-save",
        "--disable-validation",
    ]
    flags += ["--finetune-from-model", tmp_path / "checkpoint_last.pt"]
    run = train(toy_data, *flags, "--freeze-cache", "memory", begin=begin)
    assert_same(run, train(toy_data, *flags, begin=begin))
    assert hits_of(run) == (5, 5)


def test_a_roberta(moods):
    flags = "--task sentence_prediction --criterion sentence_prediction --num-classes 2 --init-token 0 --separator-token 2".split()
    flags += "--arch reservoir_roberta --reservoir-encoder LTL --freeze encoder.emb,encoder.pos,encoder.ln,encoder.layers.0".split()
    flags += "--encoder-embed-dim 16 --encoder-ffn-embed-dim 24 --encoder-attention-heads 2 --max-positions 16".split()
    flags += "--cpu --optimizer adam --lr 0.01 --num-workers 0 --log-format none --seed 3 --no-save".split()
    flags += [*SMALL[2:], "--frozen-prefix-no-dropout"]
    run = train(moods, *flags, "--freeze-cache", "memory", begin=[])
    assert_same(run, train(moods, *flags, begin=[]))
    assert hits_of(run) == (5, 5)
