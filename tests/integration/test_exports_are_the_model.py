"""Exports of models with random flags equal the checkpoint bit for bit, and so does an export of an export."""

import random

import pytest
import torch
from fairseq import checkpoint_utils

from fairseq_reservoir.checkpoint.export import export
from tests.support.commands import RUN, error_of
from tests.support.letters import WITH_EVERY_KIND

SIZES = "--encoder-embed-dim 16 --encoder-ffn-embed-dim 24 --encoder-attention-heads 2 --decoder-attention-heads 2"
SHARING = ("", "--share-decoder-input-output-embed", "--share-all-embeddings")
FREEZING = (
    "",
    "",
    "--freeze att",
    "--freeze emb",
    "--freeze ffn --frozen-init glorot",
    "--freeze encoder --frozen-init orthogonal",
)
LETTERS = {stack: sorted(set(letters)) for stack, letters in WITH_EVERY_KIND.items()}
MASKS = (
    ("", "--mask-kind signed", "--mask-kind signed --mask-coats 0.4,0.2", "--mask-coats 0.3", "--mask-random"),
    ("", "--mask-scope row", "--mask-scope global"),
    ("", "--mask-scores value"),
    ("", "--mask-pin 0.5"),
    ("", "--mask-row-gain"),
)
TRAINED = ("--mask-trained-weights sign", "--mask-trained-weights ternary", "--mask-trained-weights 4")
EMBEDDINGS = ("masked", "frozen", "trained", "sign", "ternary", "8")


def drawn_flags(draw):
    """Random flags for an architecture of three and two layers, or of one stack of three, that change the content of an export."""
    if draw.random() < 0.4:
        plans = ("".join(draw.choices(LETTERS[stack], k=k)) for stack, k in (("encoder", 3), ("decoder", 2)))
        encoder, decoder = (f"L{plan[1:]}" for plan in plans)
        flags = [
            f"--arch reservoir_transformer --reservoir-encoder {encoder} --reservoir-decoder {decoder}",
            draw.choice(FREEZING),
            draw.choice(("", "", "--frozen-dtype bf16", "--reservoir-train-layernorm", "--encoder-layers-to-keep 0,2")),
        ]
        if flags[1] and not flags[2] and draw.random() < 0.3:
            flags.append(draw.choice(("--frozen-adapter lora", "--frozen-adapter vera")))
    else:
        kind = [draw.choice(TRAINED)] if draw.random() < 0.3 else [draw.choice(choices) for choices in MASKS]
        flags = [
            "--arch supermask_one_layer_transformer --encoder-layers 3 --decoder-layers 2",
            *kind,
            f"--mask-embeddings {draw.choice(EMBEDDINGS)}" if draw.random() < 0.7 else "",
            draw.choice(("", "--mask-share none")),
            draw.choice(("", "--mask-layernorm plain")),
        ]
    return " ".join([*flags, draw.choice(SHARING)]).split()


def outputs(path, task):
    """Outputs of the model in a file for two sentences, and all its state."""
    (model,), _ = checkpoint_utils.load_model_ensemble([str(path)], task=task)
    source, before = torch.tensor([[4, 5, 6, 7, 2], [1, 8, 9, 4, 2]]), torch.tensor([[2, 4, 6], [2, 5, 7]])
    with torch.no_grad():
        return model.eval()(source, torch.tensor([5, 4]), before)[0]


# Together these draws have every kind of frozen layer, masks of every scope and kind, pinned entries, both kinds of trained
# rounded matrices, both ways of sharing, an adapter, bf16, and exports with weights, without, and compact.
CHOSEN = (1, 3, 4, 6, 7, 11, 15, 17, 18)


# Flags that contradict each other are refused in one line, and the draw tests nothing.
@pytest.mark.parametrize("number", [n if n in CHOSEN else pytest.param(n, marks=pytest.mark.slow) for n in range(120)])
def test_an_export_is_the_model(number, toy_data, tmp_path):
    draw = random.Random(number)
    flags = drawn_flags(draw)
    training = "--max-update 3 --no-epoch-checkpoints --disable-validation --num-workers 0".split()
    answer, status = error_of(toy_data, *SIZES.split(), *flags, *training, "--save-dir", tmp_path, begin=RUN)
    if status:
        assert "error: --" in answer and answer.count("\n") == 1, (flags, answer)
        pytest.skip(answer)
    checkpoint = tmp_path / "checkpoint_last.pt"
    how = {"with_weights": draw.random() < 0.3, "compact": draw.random() < 0.3}
    task = checkpoint_utils.load_model_ensemble_and_task([str(checkpoint)])[2]
    expected = outputs(checkpoint, task)
    assert expected.isfinite().all()
    written = export(checkpoint, tmp_path / "model.safetensors", **how)
    assert outputs(written.path, task).equal(expected), flags
    again = export(written.path, tmp_path / "again.safetensors", **how)
    assert outputs(again.path, task).equal(expected), flags
