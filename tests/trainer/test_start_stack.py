"""Encoders and decoders that start with the values of a translation model, a RoBERTa or a language model."""

import shutil

import pytest
import torch

from fairseq_reservoir import cli
from tests.support.commands import RUN, error_of, train

SIZES = (
    "--encoder-embed-dim 16 --encoder-ffn-embed-dim 24 --encoder-attention-heads 2 --encoder-layers 2"
    " --decoder-embed-dim 16 --decoder-ffn-embed-dim 24 --decoder-attention-heads 2 --decoder-layers 2"
).split()
ONCE = ["--max-update", 2, "--disable-validation", "--no-epoch-checkpoints"]
TRANSLATION = ["--source-lang", "en", "--target-lang", "de"]
FROZEN_ENCODER = ["--arch", "frozen_transformer", *SIZES, "--freeze", "encoder", "--start-encoder-from"]


def run(data, *flags):
    return train(data, *flags, *ONCE, begin=RUN)


@pytest.fixture(scope="module")
def translation(toy_data, tmp_path_factory):
    """Return the checkpoint of a translation model after two updates."""
    folder = tmp_path_factory.mktemp("translation")
    run(toy_data, *TRANSLATION, "--arch", "frozen_transformer", *SIZES, "--save-dir", folder)
    return folder / "checkpoint_last.pt"


@pytest.fixture(scope="module")
def language_model(toy_data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("lm")
    flags = "--task language_modeling --tokens-per-sample 16 --sample-break-mode eos --arch transformer_lm"
    flags += " --decoder-input-dim 16 --decoder-output-dim 16"
    run(toy_data, *flags.split(), *SIZES[8:], "--share-decoder-input-output-embed", "--save-dir", folder)
    return folder / "checkpoint_last.pt"


def stored(path):
    return torch.load(path, weights_only=False)["model"]


def values(state, prefix):
    return {
        n.removeprefix(prefix): t
        for n, t in state.items()
        if n.startswith(prefix) and not n.endswith(("version", "_float_tensor"))
    }


@pytest.mark.parametrize("exported", [False, True], ids=["checkpoint", "export"])
def test_frozen_encoder_keeps_the_copied_values(toy_data, tmp_path, translation, exported, caplog):
    start = translation
    if exported:
        start = tmp_path / "model.safetensors"
        cli.main(["export", str(translation), str(start)])
    flags = [*FROZEN_ENCODER, start, "--save-dir", tmp_path / "run"]
    with caplog.at_level("INFO"):
        model = run(toy_data, *TRANSLATION, *flags, "--seed", 8).model
    trained = values(stored(translation), "encoder.")
    assert f"--start-encoder-from {start}: all {len(trained)} tensors of its encoder copied" in caplog.text
    for state in (model.state_dict(), stored(tmp_path / "run" / "checkpoint_last.pt")):
        encoder = values(state, "encoder.")
        assert encoder.keys() == trained.keys() and all(encoder[name].equal(trained[name]) for name in trained)
    decoder, theirs = values(model.state_dict(), "decoder."), values(stored(translation), "decoder.")
    assert not decoder["layers.0.fc1.weight"].equal(theirs["layers.0.fc1.weight"])


def test_resuming_does_not_need_the_copied_checkpoint(toy_data, tmp_path, translation):
    start = tmp_path / "start.pt"
    start.write_bytes(translation.read_bytes())
    flags = [
        *TRANSLATION,
        "--arch",
        "frozen_transformer",
        *SIZES,
        "--start-encoder-from",
        start,
        "--save-dir",
        tmp_path / "run",
    ]
    run(toy_data, *flags)
    start.unlink()
    resumed = train(toy_data, *flags, *ONCE, "--max-update", 3, begin=RUN)
    assert resumed.trainer.get_num_updates() == 3


def test_a_decoder_starts_from_a_language_model(toy_data, tmp_path, language_model, caplog):
    flags = [
        "--arch",
        "reservoir_transformer",
        "--reservoir-encoder",
        "LF",
        *SIZES,
        "--share-decoder-input-output-embed",
    ]
    with caplog.at_level("INFO"):
        without_updates = ["--lr", 0, "--no-save"]
        model = run(toy_data, *TRANSLATION, *flags, "--start-decoder-from", language_model, *without_updates).model
    theirs = values(stored(language_model), "decoder.")
    ours = values(model.state_dict(), "decoder.")
    assert all(ours[name].equal(theirs[name]) for name in theirs)
    assert {name.split(".")[2] for name in ours.keys() - theirs.keys()} == {"encoder_attn", "encoder_attn_layer_norm"}
    assert (
        f"{len(ours) - len(theirs)} other tensors (adapters, attention to the source) are initialised as usual"
        in caplog.text
    )


def test_an_encoder_starts_from_a_roberta(toy_data, tmp_path):
    """masked_lm adds the token ``<mask>`` to its dictionary. The dictionary of the translation model has to have it too."""
    pretrain = "--task masked_lm --sample-break-mode eos --tokens-per-sample 16 --criterion masked_lm --arch roberta --max-positions 64"
    run(toy_data, *pretrain.split(), *SIZES[:8], "--save-dir", tmp_path / "roberta")
    start = tmp_path / "roberta" / "checkpoint_last.pt"
    theirs = values(stored(start), "encoder.sentence_encoder.")
    shape = "--encoder-learned-pos --layernorm-embedding --max-source-positions 64".split()
    flags = [
        "--arch",
        "reservoir_transformer",
        *SIZES,
        *shape,
        "--freeze",
        "encoder",
        "--start-encoder-from",
        start,
        "--no-save",
    ]
    line, _ = error_of(toy_data, *TRANSLATION, *flags, *ONCE, begin=RUN)
    entries = len(theirs["embed_tokens.weight"])
    assert (
        f"its embed_tokens.weight has the shape {entries} x 16, but {entries - 1} x 16 in the model (another dictionary"
        in line
    )
    data = shutil.copytree(toy_data, tmp_path / "data")
    with (data / "dict.en.txt").open("a") as dictionary:
        dictionary.write("<mask> 0\n")
    model = run(data, *TRANSLATION, *flags).model
    ours = values(model.state_dict(), "encoder.")
    assert ours.keys() == theirs.keys() and all(ours[name].equal(theirs[name]) for name in theirs)


@pytest.mark.parametrize("adapter", ["lora", pytest.param("vera", marks=pytest.mark.slow)])
def test_adapters_around_a_trained_encoder(toy_data, translation, adapter):
    adapted = ["--frozen-adapter", adapter, "--frozen-adapter-rank", 2]
    model = run(toy_data, *TRANSLATION, *FROZEN_ENCODER, translation, *adapted, "--no-save").model
    theirs, ours = values(stored(translation), "encoder."), values(model.state_dict(), "encoder.")
    assert all(ours[name].equal(theirs[name]) for name in theirs)
    assert any("frozen_adapter" in name for name in ours.keys() - theirs.keys())


REFUSED = {
    "no file": ("--arch frozen_transformer --start-encoder-from no-file", "--start-encoder-from no-file: no such file"),
    "no fairseq checkpoint": (
        "--arch frozen_transformer --start-encoder-from DATA/dict.en.txt",
        "dict.en.txt: not a checkpoint of fairseq",
    ),
    "with --finetune-from-model": (
        "--arch frozen_transformer --start-encoder-from CHECKPOINT --finetune-from-model CHECKPOINT",
        "has no effect with --finetune-from-model, which sets all values",
    ),
    "with --restore-file": (
        "--arch frozen_transformer --start-encoder-from CHECKPOINT --restore-file CHECKPOINT",
        "has no effect with --restore-file, which sets all values",
    ),
    "with word vectors": (
        "--arch frozen_transformer --start-encoder-from CHECKPOINT --encoder-embed-path vectors.txt",
        "would replace the vectors of --encoder-embed-path",
    ),
    "embeddings shared only in the model": (
        "--arch frozen_transformer --share-all-embeddings --start-encoder-from CHECKPOINT --start-decoder-from CHECKPOINT",
        "the model shares the tensor encoder.embed_tokens.weight between two modules, but the values to copy for these modules differ",
    ),
    "a reservoir": (
        "--arch reservoir_transformer --reservoir-encoder LT --start-encoder-from CHECKPOINT",
        "encoder.layers.1.self_attn.k_proj.weight is drawn from the seed and would be overwritten",
    ),
    "drawn components": (
        "--arch frozen_transformer --freeze encoder.ffn --frozen-init zero --start-encoder-from CHECKPOINT",
        "encoder.layers.0.fc1.weight is drawn from the seed and would be overwritten",
    ),
    "fewer layers": (
        "--arch frozen_transformer --encoder-layers 1 --start-encoder-from CHECKPOINT",
        "contains layers.1.self_attn.k_proj.weight, but the model's encoder does not; give the flags with which this encoder was trained",
    ),
    "more layers": (
        "--arch frozen_transformer --encoder-layers 3 --start-encoder-from CHECKPOINT",
        "does not contain layers.2.self_attn.k_proj.weight, ",
    ),
    "another width": (
        "--arch frozen_transformer --encoder-ffn-embed-dim 32 --start-encoder-from CHECKPOINT",
        "its layers.0.fc1.weight has the shape 24 x 16, but 32 x 16 in the model",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_are_one_line(toy_data, tmp_path, translation, case):
    flags, message = (
        text.replace("CHECKPOINT", str(translation)).replace("DATA", str(toy_data)) for text in REFUSED[case]
    )
    line, status = error_of(
        toy_data, *TRANSLATION, *SIZES, *flags.split(), *ONCE, "--save-dir", tmp_path / "run", begin=RUN
    )
    assert status == 2 and line.startswith("fairseq-train: error: --start-encoder-from ") and line.count("\n") == 1
    assert message in line
    assert not list((tmp_path / "run").rglob("*"))


def test_a_model_without_an_encoder(toy_data, translation):
    flags = "--task language_modeling --tokens-per-sample 16 --sample-break-mode eos --arch reservoir_transformer_lm --no-save"
    line, _ = error_of(toy_data, *flags.split(), *SIZES[8:], "--start-encoder-from", translation, *ONCE, begin=RUN)
    assert (
        line == f"fairseq-train: error: --start-encoder-from {translation}: the model has no encoder; remove the flag\n"
    )


def test_output_of_a_copied_encoder_is_cached(toy_data, translation, caplog):
    flags = [*FROZEN_ENCODER, translation, "--no-save"]
    three_epochs = ["--max-epoch", 3, "--disable-validation", "--batch-size", 80, "--dropout", 0]
    plain = train(toy_data, *TRANSLATION, *flags, *three_epochs, begin=RUN).weights
    with caplog.at_level("INFO"):
        cached = train(toy_data, *TRANSLATION, *flags, *three_epochs, "--freeze-cache", "memory", begin=RUN).weights
    assert all(cached[name].equal(plain[name]) for name in plain)
    assert "2 of 2 batches came from the cache" in caplog.text
