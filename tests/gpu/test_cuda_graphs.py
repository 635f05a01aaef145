"""``--cuda-graphs``: a replayed step has the bits of an ordinary step of the same padded batch."""

from contextlib import nullcontext

import pytest

from tests.integration.test_every_model_every_command import MODELS as ALL, TASKS
from tests.integration.test_resume import assert_same_bits
from tests.support.commands import RUN, load, train
from tests.support.graphs import never_recording, recording
from tests.support.several_processes import in_processes, train_as

TRANSLATION = TASKS["translation"]
MODELS = {
    "layers": f"--arch reservoir_transformer {TRANSLATION} --reservoir-encoder LFT --reservoir-decoder LT --fast",
    "layers, slow": f"--arch reservoir_transformer {TRANSLATION} --reservoir-encoder LTF --reservoir-decoder L",
    "masks": f"--arch supermask_one_layer_transformer {TRANSLATION} --encoder-layers 2 --decoder-layers 2 --fast",
    "language model": f"--task language_modeling --arch reservoir_transformer_lm {TASKS['language_modeling']} --reservoir-decoder LTF "
    "--fast",
    "roberta": f"--task masked_lm --arch supermask_one_layer_roberta {TASKS['masked_lm']} --encoder-layers 2",
}
SMOOTHED = ["--criterion", "label_smoothed_cross_entropy", "--label-smoothing", "0.1"]
PRECISIONS = {
    "fp32": [],
    "bf16": ["--bf16"],
    "fp16": ["--fp16", "--fp16-init-scale", "8"],
    "fp16, less": ["--memory-efficient-fp16"],
}
COMMON = "--cuda-graphs --cuda-graph-buckets 3 --disable-validation --clip-norm 1 --batch-size 8".split()


def run(device, data, model, *flags, save="--no-save"):
    criterion = [] if "masked_lm" in model else SMOOTHED
    begin = [word for word in RUN if device == "cpu" or word != "--cpu"]
    words = [*model.split(), *criterion, *COMMON, *flags, *([save] if save == "--no-save" else ["--save-dir", save])]
    with recording(device):
        return train(data, *words, begin=begin)


def of_model(model, precision):
    usual = model == "masks" and precision == "fp32" or model == "layers" and precision == "bf16"
    return pytest.param(model, precision, marks=[] if usual else [pytest.mark.slow])


@pytest.mark.parametrize("model, precision", [of_model(m, p) for m in MODELS for p in PRECISIONS])
def test_bits_of_an_ordinary_training(device, toy_data, model, precision):
    if device == "cpu" and precision == "fp16":
        pytest.skip("fairseq makes the flat buffer of --fp16 on a GPU")
    updates = 50 if device == "cuda" else 14
    flags = [*PRECISIONS[precision], "--max-update", updates]
    graphed = run(device, toy_data, MODELS[model], *flags)
    with never_recording():
        ordinary = run(device, toy_data, MODELS[model], *flags)
    kinds = graphed.trainer.graphs.kinds
    assert kinds["replayed"] >= updates - 10 and kinds["recorded"] <= 3, kinds
    assert ordinary.trainer.graphs.kinds["replayed"] == 0
    assert graphed.losses == ordinary.losses
    assert_same_bits(graphed.weights, ordinary.weights)


# frozen_lightconv has not been recorded on a GPU since the unused biases of its convolutions are initialised.
@pytest.mark.parametrize(
    "arch", [pytest.param(arch, marks=pytest.mark.slow) for arch in ALL if arch != "frozen_lightconv"]
)
def test_every_model_is_recorded(device, toy_data, arch):
    task, words = ALL[arch]
    model = f"--task {task} --arch {arch} {TASKS[task]} {words}"
    graphed = run(device, toy_data, model, "--max-update", 30)
    with never_recording():
        ordinary = run(device, toy_data, model, "--max-update", 30)
    assert graphed.trainer.graphs.kinds["replayed"] >= 20
    assert graphed.losses == ordinary.losses
    assert_same_bits(graphed.weights, ordinary.weights)


@pytest.mark.parametrize("updates", [7])
def test_a_resumed_run_is_the_whole_one(device, toy_data, tmp_path, updates):
    flags = [*PRECISIONS["fp32"], "--no-epoch-checkpoints"]
    whole = run(device, toy_data, MODELS["layers"], *flags, "--max-update", 30, save=tmp_path / "whole")
    run(device, toy_data, MODELS["layers"], *flags, "--max-update", updates, save=tmp_path / "part")
    rest = run(device, toy_data, MODELS["layers"], *flags, "--max-update", 30, save=tmp_path / "part")
    assert rest.losses == whole.losses[updates:]
    ours, wholes = load(tmp_path / "part"), load(tmp_path / "whole")
    assert_same_bits(ours["model"], wholes["model"])
    assert_same_bits(ours["last_optimizer_state"], wholes["last_optimizer_state"])


@pytest.mark.parametrize("flags", ["--update-freq 2", "--optimizer freeze_skip --freeze-schedule 12:encoder"])
def test_accumulated_batches_and_a_freeze_schedule(device, toy_data, flags):
    graphed = run(
        device, toy_data, MODELS["masks" if "update" in flags else "layers"], *flags.split(), "--max-update", 30
    )
    with never_recording():
        ordinary = run(
            device, toy_data, MODELS["masks" if "update" in flags else "layers"], *flags.split(), "--max-update", 30
        )
    assert graphed.trainer.graphs.kinds["replayed"] >= 15
    assert graphed.losses == ordinary.losses
    assert_same_bits(graphed.weights, ordinary.weights)


def test_an_overflow_skips_the_update(device, toy_data):
    if device == "cpu":
        pytest.skip("on a CPU fairseq does not scale the loss with --fp16")
    flags = ["--fp16", "--fp16-init-scale", 2**24, "--max-update", 30]
    graphed = run(device, toy_data, MODELS["layers"], *flags)
    with never_recording():
        ordinary = run(device, toy_data, MODELS["layers"], *flags)
    assert graphed.trainer.optimizer.scaler.loss_scale == ordinary.trainer.optimizer.scaler.loss_scale < 2**24
    assert graphed.losses == ordinary.losses
    assert_same_bits(graphed.weights, ordinary.weights)


def one_of_two(rank, folder, device, data, begin, model, records):
    criterion = [] if model == "roberta" else SMOOTHED
    words = [*MODELS[model].split(), *criterion, *COMMON, "--max-update", 12, "--no-save"]
    # Five batches in an epoch: the second rank has none in the third update.
    words += ["--batch-size", 33, "--required-batch-size-multiple", 1]
    words += ["--distributed-backend", "gloo", "--device-id", 0, "--ddp-backend", "legacy_ddp"]
    with recording(device), nullcontext() if records else never_recording():
        run = train_as(rank, 2, folder / f"meeting {records}", data, *words, begin=begin)
    weights = {name: tensor.cpu() for name, tensor in run.weights.items()}
    return run.losses, weights, run.trainer.graphs.kinds["replayed"]


@pytest.mark.slow
@pytest.mark.parametrize("model", ["masks", "roberta"])
def test_two_ranks(device, toy_data, tmp_path, model):
    """Gradients are summed over the ranks after the replay."""
    begin = [word for word in RUN if device == "cpu" or word != "--cpu"]
    graphed, ordinary = (
        in_processes(2, one_of_two, tmp_path, device, toy_data, begin, model, records) for records in (True, False)
    )
    for (losses, weights, replayed), (others, wholes, none) in zip(graphed, ordinary):
        assert replayed >= 4 and not none
        assert losses == others
        assert_same_bits(weights, wholes)
    assert_same_bits(graphed[0][1], graphed[1][1])
