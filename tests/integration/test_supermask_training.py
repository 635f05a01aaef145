"""Supermask models with fairseq's commands: frozen weights, resuming, translation, NaN scores."""

import pytest
import torch
from fairseq import checkpoint_utils

from fairseq_reservoir.masks.masked_weight import masked_modules
from tests.support.commands import error_of, train

ARCH = "--arch supermask_one_layer_transformer --encoder-layers 3 --decoder-layers 2 --share-decoder-input-output-embed".split()
DECAY = "--weight-decay 0.1 --clip-norm 0.5 --update-freq 2 --store-ema --ema-decay 0.9".split()


def random_tensors(state):
    return {n: t for n, t in state.items() if "random_layer" in n or n.endswith("frozen_weight")}


@pytest.mark.parametrize(
    "mode",
    [
        ["--bf16"],
        pytest.param(["--fp16", "--fp16-no-flatten-grads"], marks=pytest.mark.slow),
        pytest.param(["--memory-efficient-fp16"], marks=pytest.mark.slow),
    ],
    ids=lambda m: m[0],
)
def test_random_weights_stay_and_every_score_tensor_moves(toy_data, mode):
    run = train(toy_data, *ARCH, *DECAY, *mode, "--max-update", 8, "--no-save", "--disable-validation")
    before, after = run.initial, run.weights
    frozen = random_tensors(after)
    assert len(frozen) == 6 + 10 + 2
    ema = run.trainer.ema.get_model().state_dict()
    for name, tensor in frozen.items():
        assert torch.equal(tensor, before[name].to(tensor.dtype)) and torch.equal(ema[name], tensor), name
    for name, module in masked_modules(run.model).items():
        assert module.scores.dtype == torch.float32
        assert not torch.equal(module.scores, before[f"{name}.scores"]), name


def test_resuming_is_bit_exact_and_another_mask_is_refused(toy_data, tmp_path):
    flags = [
        *ARCH,
        "--mask-keep-schedule",
        "7:0.5",
        "--max-update",
        9,
        "--no-epoch-checkpoints",
        "--disable-validation",
    ]
    whole = train(toy_data, *flags, "--save-interval-updates", 4, "--save-dir", tmp_path / "a")
    middle = next((tmp_path / "a").glob("checkpoint*_4.pt"))
    resumed = train(toy_data, *flags, "--restore-file", middle, "--save-dir", tmp_path / "b")
    assert len(whole.losses) == 9 and resumed.losses == whole.losses[4:]
    for name, tensor in whole.weights.items():
        assert torch.equal(resumed.weights[name], tensor), name
    from fairseq_reservoir.errors import InputError
    from fairseq_reservoir.fairseq_repairs.error_report import find_input_error

    with pytest.raises(Exception) as error:
        train(toy_data, *flags, "--mask-scope", "row", "--restore-file", middle, "--save-dir", tmp_path / "c")
    mistake = find_input_error(error.value)
    assert isinstance(mistake, InputError) and "--mask-scope row: the checkpoint was trained with tensor" in str(
        mistake
    )


@pytest.fixture(scope="module")
def trained(toy_data, tmp_path_factory):
    """Folder of a run of two updates."""
    folder = tmp_path_factory.mktemp("trained")
    train(toy_data, *ARCH, "--max-update", 2, "--no-epoch-checkpoints", "--disable-validation", "--save-dir", folder)
    return folder


def test_it_translates(toy_data, trained, tmp_path, run_fairseq):
    path = trained / "checkpoint_last.pt"
    run_fairseq("generate", toy_data, "--path", path, "--batch-size", 4, "--results-path", tmp_path)
    assert (tmp_path / "generate-test.txt").read_text().count("H-") == 8


def test_checkpoints_hold_shared_weights_once(trained):
    state = checkpoint_utils.load_checkpoint_to_cpu(str(trained / "checkpoint_last.pt"))["model"]
    assert sum(name.endswith("random_layer.fc1") for name in state) == 2
    assert not any("layers." in name and "frozen_weight" in name for name in state)


def test_nan_scores_are_named(toy_data, tmp_path, caplog):
    run = train(toy_data, *ARCH, "--max-update", 2, "--no-save")
    run.model.encoder.layers[1].fc2.scores.data[0, 0] = float("nan")
    with caplog.at_level("ERROR"):
        run.trainer.begin_valid_epoch(1)
    assert "update 2: NaN in the scores of encoder.layers.1.fc2.scores" in caplog.text


@pytest.mark.parametrize(
    "flags, reason",
    [
        ("--mask-scope global", "--mask-scope global ranks the scores of all masks together"),
        ("--mask-keep-schedule 2:0.5", "--mask-keep-schedule shrinks every mask"),
    ],
)
def test_frozen_masks_that_would_not_stay_are_refused(toy_data, flags, reason):
    run = [toy_data, *ARCH, *flags.split(), "--max-update", 1, "--no-save", "--disable-validation"]
    line, status = error_of(*run, "--freeze", "encoder.ffn")
    said = f"--freeze encoder.ffn: freezes the scores of encoder.layers.0.fc1, but their mask would still change, because {reason};"
    assert status != 0 and line.count("\n") == 1 and said in line
    train(*run, "--freeze", "ln")
    # Refused at any update, except for schedules that only skip updates.
    for schedule in ("--freeze-schedule 1:encoder", "--freeze-progressive 1:1", "--freeze-rotate 1:1"):
        line, status = error_of(*run, "--optimizer", "freeze_skip", *schedule.split())
        said = f"error: {schedule}: freezes the scores of "
        assert status != 0 and line.count("\n") == 1 and said in line and f"because {reason};" in line
    train(*run, *"--optimizer freeze_skip --freeze-schedule 1:ln --freeze-update-every ffn:2".split())


def test_masks_of_one_choice_stay_where_all_scores_are_frozen(toy_data):
    run = train(toy_data, *ARCH, "--mask-scope", "global", "--freeze", "att,ffn,emb", "--max-update", 2, "--no-save")
    assert not any(masked.scores.requires_grad for masked in masked_modules(run.model).values())
