"""``--backskip`` in fairseq's trainer: bits, FLOPs, resuming, several ranks, and checkpoints."""

import logging

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from fairseq_reservoir import cli
from fairseq_reservoir.checkpoint import load_translator, read_state_dict
from fairseq_reservoir.checkpoint.export import export
from fairseq_reservoir.checkpoint.ledger import ledger
from fairseq_reservoir.checkpoint.meta_checkpoint import open_checkpoint
from fairseq_reservoir.layers.backskip.backward_skip import ESTIMATORS, Identity
from tests.support.building import build, logits, pad, sentences, shift
from tests.support.commands import error_of, load, train
from tests.support.several_processes import in_processes, train_as

PLAN = "--reservoir-encoder LTF --decoder-layers 1 --dropout 0.1 --disable-validation".split()
KINDS = ("synthetic", "reinforce")
SOURCE, TARGET = pad(sentences(5, 3)), pad(sentences(4, 6, seed=2))


ENGINES = (
    [],
    ["--fp16", "--fp16-no-flatten-grads"],
    ["--fp16", "--memory-efficient-fp16"],
    ["--bf16"],
    ["--checkpoint-activations", "--update-freq", 2],
)


def kinds_and_engines():
    """All pairs. By default scaled half precision, and recomputed layers with accumulated gradients."""
    for kind in KINDS:
        for engine in ENGINES:
            usual = kind == "synthetic" and engine in (ENGINES[2], ENGINES[4])
            yield pytest.param(kind, engine, marks=[] if usual else [pytest.mark.slow])


@pytest.mark.parametrize("kind, engine", kinds_and_engines())
def test_true_gradients_always_are_no_backskipping_bit_for_bit(toy_data, kind, engine):
    flags = [*PLAN, *engine, "--max-update", 4, "--no-save"]
    plain = train(toy_data, *flags)
    ours = train(toy_data, *flags, "--backskip", kind, "--backskip-anneal", 1)
    assert ours.losses == plain.losses
    assert all(ours.weights[name].equal(tensor) for name, tensor in plain.weights.items())
    assert all(-1 <= float(skip.cosine) <= 1 for skip in ours.model.backskips.values())


def flops_of(model):
    """FLOPs of matrix products: (forward, forward and backward)."""
    counts = []
    for backward in (False, True):
        with FlopCounterMode(display=False) as counter:
            out = logits(model, SOURCE, shift(TARGET))
            if backward:
                out.sum().backward()
        counts.append(counter.get_total_flops())
    return counts


def test_never_runs_no_product_of_a_reservoir_backward():
    """In the backward pass, a skipped F of 8 x 12 with 3 x 7 tokens takes one 8 x 8 product by the estimator instead of its own two."""
    skipped = build("LFL", "LL", backskip="synthetic", backskip_anneal=0, backskip_warmup=0, dropout=0).train()
    true = build("LFL", "LL", dropout=0).train()
    words = SOURCE.numel()
    (forward, whole), (forward_true, whole_true) = flops_of(skipped), flops_of(true)
    assert forward == forward_true
    width, ffn = 8, 12
    assert whole_true - whole == 2 * words * (2 * width * ffn - width * width)


def test_layers_below_learn_from_estimates(toy_data, monkeypatch):
    """Nothing is trained above the frozen T. With an estimate of 0, only Adam's momentum changes the loss after the warm-up.

    An estimator that returns 0 has the place of ``reinforce``.
    """

    class Zero(Identity):
        def estimate(self, x, noise, g):
            return torch.zeros_like(g)

    monkeypatch.setitem(ESTIMATORS, "reinforce", Zero)
    flags = "--reservoir-encoder LT --decoder-layers 1 --freeze-except encoder.layers.0,encoder.emb --dropout 0".split()
    flags += (
        "--backskip-warmup 5 --backskip-anneal 0 --batch-size 8 --max-update 40 --disable-validation --no-save".split()
    )
    runs = {kind: train(toy_data, *flags, "--backskip", kind) for kind in ("reinforce", "identity", "synthetic")}
    assert not any(skip.is_true for run in runs.values() for skip in run.model.backskips.values())
    losses = {kind: sum(run.losses[20:]) for kind, run in runs.items()}  # of the second epoch
    assert losses["synthetic"] < 0.96 * losses["reinforce"] and losses["identity"] < 0.98 * losses["reinforce"]


@pytest.mark.slow
def test_the_whole_learns_from_noise(toy_data):
    """The layers above the frozen ones learn although REINFORCE adds noise to their inputs."""
    flags = [
        *PLAN,
        "--backskip",
        "reinforce",
        "--backskip-warmup",
        5,
        "--backskip-anneal",
        0,
        "--max-update",
        80,
        "--no-save",
    ]
    run = train(toy_data, *flags)
    assert not any(skip.is_true for skip in run.model.backskips.values())
    assert sum(run.losses[40:]) < 0.98 * sum(run.losses[:40])  # an epoch has 40 updates


RESUMED = [*PLAN, "--backskip-warmup", 3, "--backskip-anneal", 0.7, "--no-epoch-checkpoints"]


@pytest.fixture(scope="module")
def whole(toy_data, tmp_path_factory):
    """For each kind, a run of 10 updates, and its folder with checkpoints of updates 6 and 10."""
    runs = {}
    for kind in KINDS:
        folder = tmp_path_factory.mktemp(kind)
        flags = [*RESUMED, "--backskip", kind, "--max-update", 10, "--save-interval-updates", 6, "--save-dir", folder]
        runs[kind] = train(toy_data, *flags), folder
    return runs


@pytest.mark.parametrize("kind", KINDS)
def test_resuming_is_bit_exact(toy_data, whole, tmp_path, kind):
    run, folder = whole[kind]
    flags = [*RESUMED, "--backskip", kind, "--restore-file", folder / "checkpoint_1_6.pt", "--save-dir", tmp_path]
    rest = train(toy_data, *flags, "--max-update", 10)
    assert len(rest.losses) == 4 and rest.losses == run.losses[6:]
    one, other = load(folder)["model"], load(tmp_path)["model"]
    assert one.keys() == other.keys() and all(other[name].equal(tensor) for name, tensor in one.items())
    assert any(name.startswith("backskips.encoder_layers_2.") and tensor.any() for name, tensor in one.items())


def weights_as(rank, folder, data, *runs):
    return [dict(train_as(rank, 2, folder / f"meeting{i}", data, *flags).weights) for i, flags in enumerate(runs)]


PROCESSES = (
    "--backskip-warmup 3 --backskip-anneal 0.7 --batch-size 8 --dropout 0 --max-update 6 --lr 0.001 --no-save".split()
)
# Two processes drop different layers, but all must take part in fitting the estimators.
LAYERDROP = (
    "--encoder-layerdrop 0.5 --backskip synthetic --backskip-warmup 4 --backskip-anneal 0 --max-update 6 --no-save"
    " --ddp-backend legacy_ddp"
).split()


def same_weights_of_two(data, folder, *runs):
    """Weights of each of ``runs`` (flags) of two processes, which are the same in both."""
    found = in_processes(2, weights_as, folder, data, *runs)
    for one, other in zip(*found, strict=True):
        assert one.keys() == other.keys() and all(other[name].equal(tensor) for name, tensor in one.items())
    return found[0]


@pytest.mark.parametrize("backend", ["pytorch_ddp", pytest.param("legacy_ddp", marks=pytest.mark.slow)])
def test_two_processes_agree_with_each_other_and_with_one(toy_data, tmp_path, backend):
    flags = [*PLAN, *PROCESSES, "--backskip", "synthetic"]
    run = train(toy_data, *flags, "--update-freq", 2)
    one = run.weights
    two, _ = same_weights_of_two(toy_data, tmp_path, [*flags, "--ddp-backend", backend], [*PLAN, *LAYERDROP])
    for name, _ in run.model.named_parameters():
        torch.testing.assert_close(two[name], one[name], rtol=1e-3, atol=1e-4)
    for name in ("gram", "map"):
        name = f"backskips.encoder_layers_1.estimator.rest.{name}"
        torch.testing.assert_close(two[name], one[name], rtol=1e-2, atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["pytorch_ddp", "legacy_ddp"])
def test_two_processes_agree_although_each_has_its_noise(toy_data, tmp_path, backend):
    flags = [*PLAN, *PROCESSES, "--backskip", "reinforce", "--ddp-backend", backend]
    (weights,) = same_weights_of_two(toy_data, tmp_path, flags)
    assert weights["backskips.encoder_layers_1.estimator.value.map"].any()


def test_layerdrop_does_not_hide_a_layer():
    model = build("LTTTTTTTT", "L", backskip="synthetic", frozen_dtype="bf16", encoder_layerdrop=0.9)
    assert len(model.backskips) == 8 and model.encoder.layers[3].fc1.weight.dtype == torch.bfloat16


def test_a_checkpoint_can_be_used_with_and_without(toy_data, whole, tmp_path):
    flags = [*PLAN, "--no-epoch-checkpoints", "--save-dir", tmp_path]
    run = train(toy_data, *flags, "--restore-file", whole["synthetic"][1] / "checkpoint_1_6.pt", "--max-update", 7)
    assert run.trainer.get_num_updates() == 7 and not any("backskip" in name for name in load(tmp_path)["model"])
    run = train(toy_data, *flags, "--backskip", "reinforce", "--max-update", 8)
    assert run.trainer.get_num_updates() == 8 and any("backskip" in name for name in load(tmp_path)["model"])


def test_an_estimator_is_not_added_when_its_warmup_is_over(toy_data, whole, tmp_path):
    flags = [*PLAN, "--backskip", "synthetic", "--max-update", 7, "--save-dir", tmp_path]
    begun = ["--restore-file", whole["reinforce"][1] / "checkpoint_1_6.pt"]
    line, status = error_of(toy_data, *flags, *begun, "--backskip-warmup", 6)
    assert status != 0 and line.removeprefix("fairseq-train: error: ") == (
        "--backskip-warmup 6: the checkpoint has no synthetic estimator, and training resumes at update 6, after the warm-up; "
        "give a warm-up that ends after this update, such as 106, or add --reset-optimizer\n"
    )
    train(toy_data, *flags, *begun, "--backskip-warmup", 6, "--reset-optimizer", "--no-save")
    train(toy_data, *flags, *begun, "--backskip-warmup", 7)
    # The checkpoint now has an estimator, and other flags are allowed.
    run = train(toy_data, *flags, "--max-update", 8, "--backskip-warmup", 2, "--backskip-anneal", 0)
    assert all(skip.estimator.rest.map.any() for skip in run.model.backskips.values())


def test_an_export_leaves_the_estimators_out(toy_data, whole, tmp_path):
    run, folder = whole["synthetic"]
    export(str(folder / "checkpoint_last.pt"), str(tmp_path / "model.safetensors"), dtype="fp32")
    tensors = read_state_dict(tmp_path / "model.safetensors")
    assert not any("backskip" in name for name in tensors) and any("backskip" in name for name in run.weights)
    model = load_translator(str(tmp_path / "model.safetensors"), str(toy_data)).models[0]
    assert all(model.state_dict()[name].equal(p) for name, p in run.model.named_parameters())
    cli.main(["size", str(tmp_path / "model.safetensors")])
    opened = open_checkpoint(tmp_path / "model.safetensors").built()
    assert all(opened.state_dict()[name].equal(p) for name, p in run.model.named_parameters())
    found = ledger(run.model)
    estimators = sum(item.bytes for item in found.with_roles("training"))
    # Two layers of width 16: three 16 x 16 matrices of 4 bytes each.
    assert estimators == 2 * 3 * 16 * 16 * 4 == found.weight_bytes - found.inference_bytes


def test_cosines_are_logged(toy_data, caplog):
    caplog.set_level(logging.INFO)
    flags = [*PLAN, "--backskip", "synthetic", "--backskip-warmup", 4, "--backskip-anneal", 0]
    train(toy_data, *flags, "--log-format", "json", "--log-interval", 2, "--max-update", 8, "--no-save")
    lines = [f"{record.name} {record.getMessage()}" for record in caplog.records]
    inner = {
        update: line
        for line in lines
        for update in "2468"
        if "train_inner" in line and f'"num_updates": "{update}"' in line
    }
    assert sorted(inner) == list("2468")
    assert ['"backskip_cosine_encoder.layers.1": "' in inner[update] for update in "2468"] == [True, True, False, False]


@pytest.mark.parametrize(
    "flags, message",
    [
        (
            ["--reservoir-encoder", "LfL", "--backskip", "synthetic"],
            "--backskip synthetic: the plan has no layer to skip (encoder LfL, decoder LL)",
        ),
        (["--reservoir-decoder", "LTL", "--backskip", "synthetic"], "no layer to skip (encoder LL, decoder LTL)"),
        (["--reservoir-encoder", "LFL", "--reservoir-train-layernorm", "--backskip", "synthetic"], "no layer to skip"),
        (["--reservoir-encoder", "FL", "--freeze", "encoder.emb", "--backskip", "synthetic"], "no layer to skip"),
        (
            ["--reservoir-encoder", "LFL", "--backskip", "guess"],
            "--backskip 'guess': choose from synthetic, reinforce, identity",
        ),
        (
            ["--reservoir-encoder", "LFL", "--backskip", "synthetic", "--backskip-anneal", "1.5"],
            "--backskip-anneal 1.5: must be from 0 to 1",
        ),
        (
            ["--reservoir-encoder", "LFL", "--backskip", "synthetic", "--backskip-warmup", "-1"],
            "--backskip-warmup -1: must be at least 0",
        ),
        (["--backskip-warmup", "7"], "--backskip-warmup 7: has no effect without --backskip"),
        (
            ["--reservoir-encoder", "LFL", "--backskip-anneal", "0.5"],
            "--backskip-anneal 0.5: has no effect without --backskip",
        ),
    ],
)
def test_bad_input(toy_data, tmp_path, flags, message):
    line, status = error_of(toy_data, *flags, "--max-update", 1, "--save-dir", tmp_path / "out")
    assert status != 0 and message in line and line.count("\n") == 1
