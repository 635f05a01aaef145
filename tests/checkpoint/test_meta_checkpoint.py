"""Checkpoints opened without data: dictionary sizes come from the tensors, and models may need their task."""

import pytest
import torch

from fairseq_reservoir import cli
from fairseq_reservoir.checkpoint.export import export
from fairseq_reservoir.checkpoint.meta_checkpoint import dictionary_sizes, open_checkpoint
from fairseq_reservoir.errors import InputError
from tests.support.commands import train

BEGIN = (
    "--cpu --optimizer adam --lr 0.01 --batch-size 8 --num-workers 0 --log-format none --no-progress-bar --disable-validation"
    " --no-epoch-checkpoints"
).split()

MODELS = {
    "translation": ({"encoder.embed_tokens.weight": 9, "decoder.embed_tokens.weight": 7, "decoder.output_projection.weight": 7}, (9, 7)),
    "masked": ({"encoder.embed_tokens.frozen_weight": 9, "encoder.embed_tokens.scores": 9, "decoder.embed_tokens.scores": 7}, (9, 7)),
    "language model": ({"decoder.embed_tokens.weight": 9, "decoder.layers.0.fc1.weight": 3, "decoder.output_projection.weight": 9}, (9, 9)),
    "that predicts fewer words than it reads": ({"decoder.embed_tokens.weight": 9, "decoder.output_projection.scores": 5}, (9, 5)),
    # Bands of 4 and 5 words. .1.weight projects them to the model's width.
    "adaptive input": (
        {
            f"decoder.embed_tokens.embeddings.{band}.{i}.weight": rows
            for band, i, rows in ((0, 0, 4), (0, 1, 8), (1, 0, 5), (1, 1, 8))
        },
        (9, 9),
    ),
    "RoBERTa": ({"encoder.sentence_encoder.embed_tokens.weight": 9, "encoder.lm_head.weight": 9}, (9, 9)),
}  # fmt: skip


@pytest.mark.parametrize("model", MODELS)
def test_dictionary_sizes(model):
    rows, expected = MODELS[model]
    assert dictionary_sizes({name: torch.zeros(n, 2) for name, n in rows.items()}) == expected


def test_a_model_that_needs_an_output_dictionary(toy_data, tmp_path, capsys):
    flags = "--task language_modeling --tokens-per-sample 16 --arch frozen_lightconv_lm --freeze ffn --decoder-layers 1".split()
    flags += "--decoder-embed-dim 16 --decoder-ffn-embed-dim 24 --decoder-attention-heads 2 --decoder-kernel-size-list [3]".split()
    train(toy_data, *flags, "--max-update", 1, "--save-dir", tmp_path, begin=BEGIN)
    cli.main(["size", str(tmp_path / "checkpoint_last.pt")])
    assert "inference: weights in memory" in capsys.readouterr().out
    export(tmp_path / "checkpoint_last.pt", tmp_path / "model.safetensors")
    ours, theirs = (open_checkpoint(tmp_path / name).built() for name in ("model.safetensors", "checkpoint_last.pt"))
    words = torch.tensor([[2, 4, 5, 6]])
    assert ours(words)[0].equal(theirs(words)[0])


def test_a_model_that_needs_its_task_is_refused_in_a_line(toy_data, tmp_path):
    flags = (
        "--task multilingual_translation --lang-pairs en-de --arch frozen_multilingual_transformer --freeze ffn".split()
    )
    flags += "--encoder-layers 1 --decoder-layers 1 --encoder-embed-dim 16 --decoder-embed-dim 16".split()
    flags += "--encoder-attention-heads 2 --decoder-attention-heads 2".split()
    train(toy_data, *flags, "--max-update", 1, "--save-dir", tmp_path, begin=BEGIN)
    with pytest.raises(
        InputError, match="CHECKPOINT .*checkpoint_last.pt: its model cannot be built without the training task "
    ):
        open_checkpoint(tmp_path / "checkpoint_last.pt")
