"""--frozen-adapter with fairseq's commands: frozen matrices do not change, adapters do, and checkpoints have both."""

from types import SimpleNamespace

import pytest
import torch

from fairseq_reservoir import cli
from fairseq_reservoir.checkpoint.meta_checkpoint import open_checkpoint
from fairseq_reservoir.layers.adapters.adapted_linear import AdaptedLinear
from tests.checkpoint.conftest import translate  # noqa: F401
from tests.integration.test_frozen_stays_frozen import hashes
from tests.integration.test_resume import assert_same_bits
from tests.support.commands import error_of, load, train

PLAN = "--reservoir-encoder TFL --reservoir-decoder TT --share-decoder-input-output-embed".split()
ADAPTERS = {
    "lora": ["--frozen-adapter", "lora", "--frozen-adapter-rank", 2, "--frozen-adapter-scale"],
    "vera": ["--frozen-adapter", "vera"],
}
RUN = "--batch-size 16 --save-interval-updates 4 --no-epoch-checkpoints --disable-validation".split()


@pytest.fixture(scope="module", params=ADAPTERS)
def trained(request, toy_data, tmp_path_factory):
    """12 updates in two epochs with checkpoints of updates 4, 8 and 12: ``run``, its ``flags`` and ``folder``."""
    folder, flags = tmp_path_factory.mktemp(request.param), [*PLAN, *ADAPTERS[request.param], *RUN]
    run = train(toy_data, *flags, "--max-update", 12, "--save-dir", folder)
    return SimpleNamespace(run=run, flags=flags, folder=folder, path=folder / "checkpoint_last.pt", kind=request.param)


def test_frozen_tensors_keep_their_sha256_and_every_adapter_moves(trained):
    run, entries = trained.run, trained.run.model.slot_table.entries
    frozen = [entry.name for entry in entries if not entry.trained]
    assert sum(".fc1.weight" in name for name in frozen) == 4 and any("_proj.weight" in name for name in frozen)
    assert sum(name.startswith("frozen_adapter.") for name in frozen) == {"lora": 0, "vera": 6}[trained.kind]
    assert hashes(run.weights, frozen) == hashes(run.initial, frozen)
    adapters = [entry.name for entry in entries if entry.atom == "adapter" and entry.trained]
    assert len(adapters) == {"lora": 3, "vera": 2}[trained.kind] * (6 + 2 + 10 + 10)
    assert not [name for name in adapters if torch.equal(run.weights[name], run.initial[name])]


def test_resumes_bit_for_bit(trained, toy_data, tmp_path):
    start = ["--restore-file", trained.folder / "checkpoint_1_8.pt", "--save-dir", tmp_path]
    resumed = train(toy_data, *trained.flags, *start, "--max-update", 12)
    assert resumed.losses == trained.run.losses[8:]
    assert_same_bits(load(tmp_path)["model"], load(trained.folder)["model"])


@pytest.mark.parametrize("trained", ["vera", pytest.param("lora", marks=pytest.mark.slow)], indirect=True)
def test_resuming_with_another_adapter_is_refused_by_name(trained, toy_data, tmp_path):
    start = [*PLAN, *RUN, "--restore-file", trained.path, "--save-dir", tmp_path]
    other = {"lora": "vera", "vera": "lora"}[trained.kind]
    rank = {"lora": 2, "vera": 8}[trained.kind]
    others = {
        f"--frozen-adapter {other}: the checkpoint was trained with {trained.kind}; give {trained.kind}, or start a new training":
            ["--frozen-adapter", other, "--frozen-adapter-rank", rank],
        f"--frozen-adapter-rank 3: the checkpoint was trained with {rank}; give {rank}, or start a new training":
            ["--frozen-adapter", trained.kind, "--frozen-adapter-rank", 3],
        f"--frozen-adapter not given: the checkpoint was trained with {trained.kind}; give {trained.kind}, or start a new training": [],
    }  # fmt: skip
    for message, flags in others.items():
        line, status = error_of(toy_data, *start, *flags)
        assert status != 0 and message in line and line.count("\n") == 1
    scale = ["--frozen-adapter", trained.kind, "--frozen-adapter-rank", rank]
    line, status = error_of(toy_data, *start, *scale, *([] if trained.kind == "lora" else ["--frozen-adapter-scale"]))
    message_of_scale = {
        "lora": "--frozen-adapter-scale not given: the checkpoint was trained with this flag; give it, or start a new training",
        "vera": "--frozen-adapter-scale: the checkpoint was trained without this flag; remove it, add --reset-optimizer, or",
    }[trained.kind]
    assert status != 0 and message_of_scale in line and line.count("\n") == 1
    if trained.kind == "vera":  # as the message suggests; a gain is initially 1
        anew = [
            "--frozen-adapter-scale",
            "--reset-optimizer",
            "--reset-lr-scheduler",
            "--reset-dataloader",
            "--reset-meters",
        ]
        goes_on = train(toy_data, *start, *scale, *anew, "--max-update", 1)
        gains = [name for name in goes_on.initial if name.endswith("frozen_adapter.gain")]
        assert gains and all(goes_on.initial[name].eq(1).all() for name in gains)
    line, status = error_of(toy_data, *start, "--reset-optimizer")
    assert status != 0 and message in line and line.count("\n") == 1


@pytest.mark.parametrize("trained", ["vera", pytest.param("lora", marks=pytest.mark.slow)], indirect=True)
def test_translates_the_same_once_folded_and_from_an_export(trained, translate, tmp_path):  # noqa: F811
    model = open_checkpoint(trained.path).built()
    assert sum(isinstance(module, AdaptedLinear) for module in model.modules()) == 28
    source, previous = torch.tensor([[4, 5, 6, 2]]), torch.tensor([[2, 7, 8]])
    before = model(source, None, previous)[0]
    model.make_generation_fast_()
    assert not any(isinstance(module, AdaptedLinear) for module in model.modules())
    torch.testing.assert_close(model(source, None, previous)[0], before, rtol=1e-4, atol=1e-5)
    out = tmp_path / "model.safetensors"
    cli.main(["export", str(trained.path), str(out)])
    assert_same_bits(load(tmp_path, "model.safetensors")["model"], load(trained.folder)["model"])
    assert translate(out) == translate(trained.path)


@pytest.mark.parametrize("trained", ["lora", pytest.param("vera", marks=pytest.mark.slow)], indirect=True)
def test_averages_of_one_run(trained, tmp_path):
    out = tmp_path / "mean.pt"
    cli.main(["average", str(trained.folder / "checkpoint_1_8.pt"), str(trained.path), str(out)])
    mean, last = load(tmp_path, "mean.pt")["model"], load(trained.folder)["model"]
    earlier = load(trained.folder, "checkpoint_1_8.pt")["model"]
    name = "encoder.layers.0.fc1.frozen_adapter." + {"lora": "B", "vera": "b"}[trained.kind]
    torch.testing.assert_close(mean[name], (last[name] + earlier[name]) / 2)
    assert torch.equal(mean["encoder.layers.0.fc1.weight"], last["encoder.layers.0.fc1.weight"])


def test_a_trained_model_is_the_start_of_one_with_adapters(toy_data, tmp_path):
    """LoRA as intended, with frozen weights that were trained before. A model of only L and T equals fairseq's own model."""
    plain = ["--reservoir-encoder", "LL", "--reservoir-decoder", "L", *RUN]
    first = train(toy_data, *plain, "--max-update", 4, "--save-dir", tmp_path / "first")
    flags = [*plain, "--freeze-except", "ln,emb,out", "--frozen-adapter", "lora", "--frozen-adapter-rank", 2]
    start = ["--finetune-from-model", tmp_path / "first" / "checkpoint_last.pt", "--max-update", 4]
    second = train(toy_data, *flags, *start, "--save-dir", tmp_path / "second")
    frozen = [entry.name for entry in second.model.slot_table.entries if not entry.trained]
    assert frozen and hashes(second.weights, frozen) == hashes(first.weights, frozen)
    again = [
        "--restore-file",
        tmp_path / "second" / "checkpoint_last.pt",
        "--max-update",
        6,
        "--save-dir",
        tmp_path / "again",
    ]
    assert train(toy_data, *flags, *again).trainer.get_num_updates() == 6
    refused, status = error_of(toy_data, *flags, "--restore-file", start[1], "--save-dir", tmp_path / "third")
    assert status != 0 and "--freeze-except ln,emb,out: the checkpoint was trained without this flag" in refused
    cli.main(["materialize", str(tmp_path / "second" / "checkpoint_last.pt"), str(tmp_path / "plain.pt")])
    folded, change = load(tmp_path, "plain.pt")["model"], second.model.encoder.layers[1].fc1.frozen_adapter
    name = "encoder.layers.1.fc1.weight"
    torch.testing.assert_close(folded[name] - first.weights[name], 8 * change.B @ change.A, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("kind", ["lora", pytest.param("vera", marks=pytest.mark.slow)])
def test_a_checkpoint_of_plain_fairseq_is_the_start_of_one_with_adapters(kind, toy_data, tmp_path):
    first = train(toy_data, *RUN, "--max-update", 2, "--save-dir", tmp_path / "first", "--arch", "transformer_tiny")
    start = ["--finetune-from-model", tmp_path / "first" / "checkpoint_last.pt", "--max-update", 4]
    flags = ["--freeze", "att", *ADAPTERS[kind], *RUN, "--save-dir", tmp_path / "second"]
    second = train(toy_data, "--arch", "frozen_transformer_tiny", *flags, *start)
    frozen = [entry.name for entry in second.model.slot_table.entries if not entry.trained and entry.atom != "adapter"]
    assert frozen and hashes(second.weights, frozen) == hashes(first.weights, frozen)
