"""--mask-trained-weights in training: half precision, resuming, --fast, and refusal of a checkpoint of masks."""

import pytest
import torch

from fairseq_reservoir.errors import InputError
from fairseq_reservoir.fairseq_repairs.error_report import find_input_error
from fairseq_reservoir.masks.rounded_weight import rounded_modules
from tests.support.commands import train

ARCH = "--arch supermask_one_layer_transformer --encoder-layers 3 --decoder-layers 2 --share-decoder-input-output-embed".split()
DECAY = "--weight-decay 0.1 --clip-norm 0.5 --update-freq 2 --store-ema --ema-decay 0.9".split()


@pytest.mark.parametrize(
    "mode",
    [
        ["--bf16"],
        pytest.param(["--fp16", "--fp16-no-flatten-grads"], marks=pytest.mark.slow),
        pytest.param(["--memory-efficient-fp16"], marks=pytest.mark.slow),
    ],
    ids=lambda m: m[0],
)
def test_half_precision(toy_data, mode):
    run = train(toy_data, *ARCH, *DECAY, *mode, "--mask-trained-weights", "ternary", "--max-update", 30, "--no-save")
    for name, module in rounded_modules(run.model).items():
        assert module.latent.dtype == torch.float32 and module.weight.dtype == module.like.dtype != torch.float32
        assert not module.latent.equal(run.initial[f"{name}.latent"]), name


@pytest.mark.parametrize("share", ["layer", pytest.param("none", marks=pytest.mark.slow)])
def test_resuming_is_bit_exact(toy_data, tmp_path, share):
    flags = [*ARCH, "--mask-trained-weights", "sign", "--mask-share", share, "--max-update", 20]
    saved = ["--save-interval-updates", 7, "--no-epoch-checkpoints", "--save-dir", tmp_path / "a"]
    whole = train(toy_data, *flags, *saved)
    middle = next((tmp_path / "a").glob("checkpoint*_7.pt"))
    resumed = train(toy_data, *flags, "--restore-file", middle, "--save-dir", tmp_path / "b")
    assert resumed.losses == whole.losses[7:]
    assert all(resumed.weights[name].equal(tensor) for name, tensor in whole.weights.items())


def test_other_weights_are_refused_when_resuming(toy_data, tmp_path):
    train(toy_data, *ARCH, "--mask-trained-weights", "3", "--max-update", 2, "--save-dir", tmp_path)
    for flags, message in (
        (["--mask-trained-weights", "sign"], "--mask-trained-weights sign: the checkpoint was trained with 3"),
        ([], "--mask-trained-weights"),
    ):
        with pytest.raises(Exception) as error:
            train(toy_data, *ARCH, *flags, "--max-update", 4, "--save-dir", tmp_path)
        mistake = find_input_error(error.value)
        assert isinstance(mistake, InputError) and message in str(mistake)


def test_fast_gives_the_same_losses(toy_data):
    flags = [*ARCH, "--mask-trained-weights", "4", "--dropout", 0, "--max-update", 6, "--no-save"]
    plain, fast = train(toy_data, *flags), train(toy_data, *flags, "--fast")
    assert fast.losses == pytest.approx(plain.losses, rel=1e-4)


def test_given_vectors_are_where_the_latent_ones_start(toy_data, tmp_path):
    (tmp_path / "vectors.txt").write_text("2 16\na " + " ".join(["0.5"] * 16) + "\nb " + " ".join(["-2"] * 16) + "\n")
    flags = ["--encoder-embed-path", tmp_path / "vectors.txt", "--embed-min-coverage", 0.01]
    run = train(toy_data, *ARCH, *flags, "--mask-trained-weights", "sign", "--max-update", 1, "--no-save")
    index = run.model.encoder.dictionary.index("b")
    assert run.initial["encoder.embed_tokens.latent"][index].tolist() == [-2] * 16
