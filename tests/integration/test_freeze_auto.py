"""``--freeze-auto`` in fairseq's trainer: frozen tensors do not change, equal a schedule's, and are the same on all ranks."""

import hashlib
import logging
import re
from pathlib import Path

import pytest
from fairseq.tasks import FairseqTask

from fairseq_reservoir.errors import InputError
from fairseq_reservoir.freezing.freeze_auto import check_model
from tests.integration.test_freeze_skip import FORMATS, MODEL, Recording, assert_same_training
from tests.support.commands import RUN, TINY, error_of, load, train
from tests.support.several_processes import in_processes, train_as

# Large enough that some layers converge within forty updates.
AUTO = "--optimizer freeze_skip --freeze-auto --freeze-auto-interval 2 --freeze-auto-threshold 0.9".split()
QUIET = ["--disable-validation", "--no-epoch-checkpoints", "--lr", 0.003]


def frozen_by(run):
    """Layer -> update at which it was frozen."""
    return {change.spec: change.update for change in run.trainer.freeze_schedule.changes}


def as_schedule(run):
    """Flags of a schedule that freezes the same tensors at the same updates."""
    entries = []
    for change in run.trainer.freeze_schedule.changes:
        embeddings = any("embed_tokens" in name for name in change.names)
        spec = f"{change.spec},{change.spec.partition('.')[0]}.emb" if embeddings else change.spec
        entries.append(f"{change.update}:{spec}")
    return ["--optimizer", "freeze_skip", "--freeze-schedule", ";".join(entries)]


def digests(tensors):
    return {
        name: hashlib.sha256(tensor.detach().cpu().float().numpy().tobytes()).hexdigest() for name, tensor in tensors
    }


class Hashed(Recording):
    """Trainer that also records the hashes of all parameters after every update."""

    def __enter__(self):
        from fairseq.trainer import Trainer

        super().__enter__()
        self.hashes, recording = [], Trainer.train_step

        def train_step(trainer, samples, *args, **kwargs):
            result = recording(trainer, samples, *args, **kwargs)
            self.hashes.append(digests(trainer.get_model().named_parameters()))
            return result

        Trainer.train_step = train_step
        return self


@pytest.fixture(scope="module")
def whole(toy_data, tmp_path_factory):
    """A run of 24 updates in which some layers freeze, with its records and its last checkpoint."""
    folder = tmp_path_factory.mktemp("auto")
    with Hashed() as seen:
        run = train(toy_data, *MODEL, *AUTO, *QUIET, "--max-update", 24, "--save-dir", folder)
    return run, seen, load(folder)


def test_a_layer_changes_until_it_is_frozen_and_never_after(whole):
    run, seen, _ = whole
    found = frozen_by(run)
    assert "encoder.layers.0" in found and 8 <= min(found.values()) and max(found.values()) < 24
    for change in run.trainer.freeze_schedule.changes:
        for name in change.names:
            history = [hashes[name] for hashes in seen.hashes]
            assert len(set(history[change.update - 1 :])) == 1, name
            if name.endswith("weight"):
                assert len(set(history[: change.update])) == change.update, name
            assert all(name in trained for trained in seen.trained[: change.update])
            assert not any(name in trained for trained in seen.trained[change.update :])
    first = run.trainer.freeze_schedule.changes[0]
    assert "encoder.embed_tokens.weight" in first.names
    # The top layer and the output projection are never frozen.
    last = {name for name in seen.moved[-1] if name.startswith(("decoder.layers.1", "decoder.output_projection"))}
    assert len(last) > 10


def test_it_is_the_schedule_that_freezes_at_the_same_updates(whole, toy_data, tmp_path):
    """Measuring layers has no other effect: it draws no random number and changes no module's mode."""
    run, _, checkpoint = whole
    by_hand = train(toy_data, *MODEL, *as_schedule(run), *QUIET, "--max-update", 24, "--save-dir", tmp_path)
    assert by_hand.losses == run.losses
    assert_same_training(load(tmp_path), checkpoint)


def test_resuming_in_every_phase_is_bit_exact(whole, toy_data, tmp_path):
    """Before the first measurement, between measurements, at one, after the first freeze and after the last."""
    run, _, checkpoint = whole
    first, last = min(frozen_by(run).values()), max(frozen_by(run).values())
    flags = [*MODEL, *AUTO, *QUIET, "--save-dir", tmp_path]
    losses, done = [], 0
    for update in sorted({1, 2, 5, first - 1, first, first + 1, last, last + 1, 24}):
        part = train(toy_data, *flags, "--max-update", update)
        losses += part.losses
        assert len(losses) == update > done
        done = update
    assert frozen_by(part) == frozen_by(run) and losses == run.losses
    assert_same_training(load(tmp_path), checkpoint)


def test_each_freeze_is_one_line(toy_data, caplog):
    with caplog.at_level(logging.INFO):
        run = train(toy_data, *MODEL, *AUTO, *QUIET, "--max-update", 24, "--no-save")
    lines = [r.getMessage() for r in caplog.records if r.name.endswith("freeze_auto")]
    assert len(lines) == len(frozen_by(run)) > 0
    first = min(frozen_by(run).values())
    assert re.fullmatch(
        rf"update {first}: encoder\.layers\.0 with encoder\.embed_tokens frozen; 17 of \d+ tensors are frozen; "
        r"it changed by [\d.e-]+ since the last look, at most by [\d.e-]+",
        lines[0],
    )
    (said,) = [m for r in caplog.records if "what the optimizer freezes" in (m := r.getMessage())]
    order = "encoder.layers.0, encoder.layers.1, decoder.layers.0"
    assert said.endswith(
        f"every 2 updates: what changes by less than 0.9 of the most it ever did freezes, in this order: {order}"
    )


def test_embeddings_shared_with_the_output_stay_trained_with_a_warning(toy_data, caplog):
    flags = [*MODEL, *AUTO, *QUIET, "--share-all-embeddings", "--max-update", 24, "--no-save"]
    with caplog.at_level(logging.INFO), Recording() as seen:
        run = train(toy_data, *flags)
    assert frozen_by(run) and "encoder.embed_tokens.weight" in seen.moved[-1]
    assert any(
        "; encoder.embed_tokens.weight stays trained, shared with what never freezes" in r.getMessage()
        for r in caplog.records
    )


def test_the_cache_stores_layers_that_freeze_auto_froze(toy_data, tmp_path):
    """The same bits with and without --freeze-cache, and if killed after the first freeze and resumed."""
    flags = [*MODEL, *AUTO, *QUIET, "--batch-size", 16, "--frozen-prefix-no-dropout", "--max-update", 24]
    plain = train(toy_data, *flags, "--no-save")
    cached = train(toy_data, *flags, "--no-save", "--freeze-cache", "memory")
    assert cached.losses == plain.losses and frozen_by(cached) == frozen_by(plain)
    assert all(cached.weights[name].equal(tensor) for name, tensor in plain.weights.items())
    assert cached.trainer.prefix_cache.hits and cached.trainer.frozen_prefix.depth
    first = min(frozen_by(plain).values())
    flags += ["--save-dir", tmp_path, "--freeze-cache", "memory"]
    losses = train(toy_data, *flags, "--max-update", first + 1).losses + train(toy_data, *flags).losses
    assert losses == plain.losses


@pytest.mark.parametrize(
    "number_format", ["bf16", *(pytest.param(f, marks=pytest.mark.slow) for f in FORMATS if f not in ("fp32", "bf16"))]
)
def test_in_half_precision(toy_data, tmp_path, number_format):
    flags = [*MODEL, *FORMATS[number_format], *QUIET, "--max-update", 20]
    run = train(toy_data, *flags, *AUTO, "--save-dir", tmp_path / "auto")
    assert frozen_by(run)
    by_hand = train(toy_data, *flags, *as_schedule(run), "--save-dir", tmp_path / "hand")
    assert by_hand.losses == run.losses
    assert_same_training(load(tmp_path / "hand"), load(tmp_path / "auto"))


def run_in_two(rank, folder, data, flags):
    folder = Path(folder)
    run = train_as(rank, 2, folder / "meeting", data, *flags, "--save-dir", folder / "out")
    return {"losses": run.losses, "frozen": frozen_by(run), "digests": digests(run.model.named_parameters())}


TWO = [*MODEL, *AUTO, *QUIET, "--ddp-backend", "legacy_ddp", "--max-update", 18]


def test_two_processes_agree(toy_data, tmp_path):
    """Only rank 0 measures the layers. The other rank has other sentences, and freezes the same layers at the same update."""
    first, second = in_processes(2, run_in_two, str(tmp_path), str(toy_data), TWO)
    assert first["frozen"] == second["frozen"] and first["frozen"]
    assert first["digests"] == second["digests"]


@pytest.mark.slow
def test_two_processes_resume(toy_data, tmp_path):
    (tmp_path / "whole").mkdir(), (tmp_path / "parts").mkdir()
    whole, _ = in_processes(2, run_in_two, str(tmp_path / "whole"), str(toy_data), TWO)
    for update in (3, 11, 18):
        (tmp_path / "parts" / "meeting").unlink(missing_ok=True)
        flags = [*TWO, "--max-update", update]
        first, second = in_processes(2, run_in_two, str(tmp_path / "parts"), str(toy_data), flags)
    assert first["frozen"] == second["frozen"] == whole["frozen"]
    assert first["digests"] == second["digests"] == whole["digests"]


MODELS = {
    "masks": "--arch supermask_one_layer_transformer --encoder-layers 2 --decoder-layers 1",
    "reservoirs": "--reservoir-encoder LTL --reservoir-decoder L",
    "estimated gradients": "--reservoir-encoder LTLL --backskip identity --decoder-layers 1",
    "a language model": "--task language_modeling --arch reservoir_transformer_lm --reservoir-decoder LLL --tokens-per-sample 16"
    " --decoder-embed-dim 16 --decoder-ffn-embed-dim 24 --decoder-attention-heads 2",
    "frozen_A": "--arch frozen_lightconv --freeze encoder.ffn --encoder-layers 2 --decoder-layers 1 --encoder-kernel-size-list [3,3]"
    " --decoder-kernel-size-list [3]",
    "recomputed": "--encoder-layers 2 --decoder-layers 1 --checkpoint-activations",
}


@pytest.mark.parametrize("model", [pytest.param(name, marks=pytest.mark.slow) for name in MODELS])
def test_of_every_family(model, toy_data):
    with Hashed() as seen:
        flags = [*MODELS[model].split(), *AUTO, *QUIET, "--max-update", 30, "--no-save"]
        run = train(toy_data, *flags, begin=RUN if model == "a language model" else TINY)
    assert frozen_by(run)
    for change in run.trainer.freeze_schedule.changes:
        for name in change.names:
            assert len({hashes[name] for hashes in seen.hashes[change.update - 1 :]}) == 1, name


def test_frozen_layers_are_stored_and_needed_to_resume(whole, toy_data, tmp_path):
    run, _, checkpoint = whole
    stored = checkpoint["last_optimizer_state"]["freeze_skip"]["learned"]
    assert dict((name, update) for update, name in stored["frozen"]) == frozen_by(run)
    last = Path(run.trainer.cfg.checkpoint.save_dir) / "checkpoint_last.pt"
    rest = [*MODEL, "--restore-file", last, "--max-update", 26, "--save-dir", tmp_path / "out"]
    for flags, message in (
        (["--optimizer", "freeze_skip"], "--freeze-auto not given: the checkpoint was trained with it; give it"),
        ([*AUTO, "--freeze-auto-interval", 3], "--freeze-auto-interval 3: the checkpoint was trained with 2; give 2"),
    ):
        line, status = error_of(toy_data, *flags, *rest)
        assert status != 0 and message in line and line.count("\n") == 1


@pytest.mark.parametrize(
    "flags, message",
    [
        ("--freeze-auto-interval 5", "--freeze-auto-interval 5: has no effect without --freeze-auto"),
        ("--freeze-auto --freeze-auto-interval 0", "--freeze-auto-interval 0: must be at least 1"),
        ("--freeze-auto --freeze-auto-keep 0", "--freeze-auto-keep 0: must be at least 1"),
        ("--freeze-auto --freeze-auto-threshold 1", "--freeze-auto-threshold 1: must be greater than 0 and below 1"),
        (
            "--freeze-auto --freeze-auto-threshold nan",
            "--freeze-auto-threshold nan: must be greater than 0 and below 1",
        ),
        (
            "--freeze-auto --freeze-progressive 2:3",
            "--freeze-progressive 2:3: not with --freeze-auto, since both freeze layers from the",
        ),
        (
            "--freeze-auto --freeze-rotate 1:3",
            "--freeze-rotate 1:3: not with --freeze-auto, since it trains layers again that have",
        ),
        (
            "--freeze-auto --freeze-update-every ffn:2",
            "--freeze-update-every ffn:2: not with --freeze-auto, since a layer that is updated",
        ),
        (
            "--freeze-auto --no-save-optimizer-state",
            "--freeze-auto with --no-save-optimizer-state: what is frozen is stored",
        ),
        ("--freeze-auto --freeze-schedule 2:emb --fp16", "--freeze-schedule with --fp16: fairseq's flat buffer"),
        (
            "--freeze-auto --distributed-world-size 2",
            "--freeze-auto with --ddp-backend pytorch_ddp: it fixes at the start",
        ),
    ],
)
def test_bad_input_is_refused_before_data_is_looked_for(tmp_path, flags, message):
    line, status = error_of(
        tmp_path / "none", "--optimizer", "freeze_skip", *flags.split(), "--save-dir", tmp_path / "out"
    )
    assert status != 0 and message in line and line.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "flags, needed",
    [
        (
            "--task translation_lev --criterion nat_loss --noise random_mask --arch frozen_cmlm_transformer",
            "this model needs tgt_tokens beside the sentences of a batch; leave it out",
        ),
    ],
)
def test_a_model_that_cannot_be_measured_is_refused_before_the_training(toy_data, flags, needed):
    line, status = error_of(toy_data, *AUTO, "--max-update", 5, "--no-save", begin=[*TINY, *flags.split()])
    assert status != 0 and f"--freeze-auto: {needed}" in line and line.count("\n") == 1


def test_a_task_without_words_is_refused():
    from types import SimpleNamespace

    from torch import nn

    for task in (SimpleNamespace(source_dictionary=None), FairseqTask(None)):
        with pytest.raises(
            InputError, match="--freeze-auto: the sources of this task are no sentences of a dictionary"
        ):
            check_model(task, nn.Linear(1, 1))


@pytest.mark.parametrize(
    "flags, message",
    [
        (
            "--freeze-auto-keep 4",
            "--freeze-auto-keep 4: the model has 4 layers with something to train, and none is left",
        ),
        (
            "--freeze-schedule 5:ffn",
            "--freeze-schedule 5:ffn with --freeze-auto: names encoder.layers.0.fc1.weight, but",
        ),
    ],
)
def test_flags_that_do_not_fit_the_model_are_refused_too(toy_data, tmp_path, flags, message):
    line, status = error_of(toy_data, *MODEL, *AUTO, *flags.split(), "--max-update", 2, "--save-dir", tmp_path / "out")
    assert status != 0 and message in line and line.count("\n") == 1
    assert not list(tmp_path.glob("out/*"))
