"""Dictionary sizes, read off the tensors of a model."""

import pytest
import torch

from fairseq_reservoir.checkpoint.opened import dictionary_sizes

MODELS = {
    "translation": ({"encoder.embed_tokens.weight": 9, "decoder.embed_tokens.weight": 7, "decoder.output_projection.weight": 7}, (9, 7)),
    "masked": ({"encoder.embed_tokens.frozen_weight": 9, "encoder.embed_tokens.scores": 9, "decoder.embed_tokens.scores": 7}, (9, 7)),
    "language model": ({"decoder.embed_tokens.weight": 9, "decoder.layers.0.fc1.weight": 3, "decoder.output_projection.weight": 9}, (9, 9)),
    "that predicts fewer words than it reads": ({"decoder.embed_tokens.weight": 9, "decoder.output_projection.scores": 5}, (9, 5)),
    # Bands of 4 and 5 words; .1.weight projects them to the model's width.
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
