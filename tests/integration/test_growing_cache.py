"""``--freeze-cache`` with a schedule that extends the frozen prefix: the cache is extended, with the same bits."""

import contextlib
import logging
from unittest.mock import patch

import torch
from fairseq.models.transformer import TransformerEncoderBase
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from fairseq.trainer import Trainer

from tests.integration.test_freeze_cache import SMALL, assert_same, hits_of
from tests.support.commands import error_of, train

# Three layers each, an optimizer that freezes, 5 updates per epoch. With GROWING the prefix starts with frozen embeddings.
LAYERS = ["--reservoir-encoder", "LLL", *SMALL, "--decoder-layers", 3, "--optimizer", "freeze_skip"]
GROWING = [*LAYERS, "--freeze", "emb"]
WITH_DROPOUT_ABOVE = ["--dropout", 0.1, "--frozen-prefix-no-dropout"]


def test_a_growing_prefix_reuses_the_cache_in_memory(toy_data, caplog):
    """Layer 0 freezes at update 2 and layer 1 at 10, of 20. By then all batches of layer 0 are cached, and layer 1 runs once for each."""
    caplog.set_level(logging.INFO)
    flags = [*GROWING, *WITH_DROPOUT_ABOVE, "--no-save", "--max-epoch", 4, "--freeze-progressive", "2:8"]
    plain = train(toy_data, *flags)
    with counted_runs_of_layer(0) as runs:
        run = train(toy_data, *flags, "--freeze-cache", "memory")
    assert_same(run, plain)
    cache = run.trainer.prefix_cache
    assert (
        [m for m in caplog.messages if "batches came" in m]
        == [
            "--freeze-cache: 0 of 3 batches came from the cache",  # of epoch 1; its last three batches are cached for layer 0
            "--freeze-cache: 3 of 5 batches came from the cache",
            "--freeze-cache: 0 of 5 batches came from the cache, 5 more from the cache of a smaller prefix",
        ]
    )
    assert hits_of(run) == (5, 5)
    assert len(runs) == 2 + 5  # until it freezes, and then once for each batch
    assert len(cache.store.batches) == 5
    assert cache.store.used == sum(tensor.nbytes for tensor in cache.store.batches.values())


def test_a_growing_prefix_rounded_in_memory_restarts(toy_data):
    """After resuming, only the output of layer 1 would be rounded. An uninterrupted training does the same."""
    flags = [
        *GROWING,
        "--dropout",
        0,
        "--no-save",
        "--max-epoch",
        3,
        "--freeze-progressive",
        "0:5",
        "--freeze-cache-dtype",
        "bf16",
    ]
    run = train(toy_data, *flags, "--freeze-cache", "memory")
    with patch("fairseq_reservoir.speed.prefix_cache.Memory.put", lambda *put: None):
        assert_same(run, train(toy_data, *flags, "--freeze-cache", "memory"))


@contextlib.contextmanager
def counted_runs_of_layer(index):
    """A list with an entry for every forward pass of this encoder layer in training."""
    runs, build = [], TransformerEncoderBase.build_encoder_layer

    def build_encoder_layer(encoder, cfg, *args, **kwargs):
        layer = build(encoder, cfg, *args, **kwargs)
        layer.register_forward_hook(
            lambda *_: runs.append(1) if layer.training and layer is encoder.layers[index] else None
        )
        return layer

    with patch.object(TransformerEncoderBase, "build_encoder_layer", build_encoder_layer):
        yield runs


def test_a_prefix_that_is_trained_again_restarts(toy_data):
    """Extended, trained again with its embeddings, frozen again, extended and shortened within 20 updates. Older entries are not used."""
    schedule = "2:emb,encoder.layers.0;4:encoder.layers.1;7:-emb;9:emb;12:encoder.layers.2;16:-encoder.layers.2"
    flags = [*LAYERS, *WITH_DROPOUT_ABOVE, "--no-save", "--max-epoch", 4, "--freeze-schedule", schedule]
    assert_same(train(toy_data, *flags, "--freeze-cache", "memory"), train(toy_data, *flags))


# Layer 0 is cached from the first update on, layer 1 from the third update of the second epoch on.
FROM_THE_START = [*GROWING, "--dropout", 0, "--freeze-progressive", "0:7", "--freeze-cache", "memory"]


def test_a_change_before_it_grows_ends_the_run(toy_data, tmp_path):
    step = Trainer.train_step

    def train_step(trainer, samples, *args):
        done = step(trainer, samples, *args)
        if trainer.get_num_updates() == 6:
            trainer.get_model().encoder.layers[0].fc1.weight.data[0, 0] += 1
        return done

    with patch.object(Trainer, "train_step", train_step):
        said, _ = error_of(toy_data, *FROM_THE_START, "--save-dir", tmp_path)
    assert "a frozen tensor in encoder.layers.0 has changed in this run;" in said and said.count("\n") == 1


def test_random_numbers_in_added_layers_are_detected(toy_data, tmp_path):
    forward = TransformerEncoderLayerBase.forward

    def noisy(layer, x, *args, **kwargs):
        grown_by = not layer.fc1.weight.requires_grad and getattr(layer, "is_second", False)
        return forward(layer, x + 0.1 * torch.randn_like(x) if grown_by else x, *args, **kwargs)

    start = Trainer.load_checkpoint

    def load_checkpoint(trainer, *args, **kwargs):
        trainer.get_model().encoder.layers[1].is_second = True
        return start(trainer, *args, **kwargs)

    with (
        patch.object(TransformerEncoderLayerBase, "forward", noisy),
        patch.object(Trainer, "load_checkpoint", load_checkpoint),
    ):
        said, _ = error_of(toy_data, *FROM_THE_START, "--save-dir", tmp_path)
    assert "--freeze-cache: encoder.layers.0-1 draws random numbers" in said
