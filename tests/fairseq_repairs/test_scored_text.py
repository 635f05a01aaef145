"""fairseq-eval-lm scores every token of a text or stops with an error. Every command stops without samples."""

import math

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.data import data_utils
from fairseq_cli import eval_lm as command

from fairseq_reservoir.errors import InputError
from tests.support import commands

LM = (
    "--cpu --task language_modeling --arch transformer_lm --decoder-layers 1 --decoder-embed-dim 8 --decoder-ffn-embed-dim 8"
    " --decoder-attention-heads 1 --optimizer adam --lr 0.1 --batch-size 4 --num-workers 0 --log-format none"
).split()
BLOCK = 8


@pytest.fixture(scope="module")
def checkpoint(toy_data, tmp_path_factory):
    """Return a checkpoint of fairseq's language model with 8 positions, trained on blocks of 8 tokens."""
    folder = tmp_path_factory.mktemp("lm")
    flags = ["--max-update", 2, "--no-epoch-checkpoints", "--disable-validation", "--save-dir", folder]
    commands.train(toy_data, "--tokens-per-sample", BLOCK, *flags, begin=[*LM])
    return folder / "checkpoint_last.pt"


@pytest.fixture
def score_text(checkpoint, toy_data, run_fairseq, monkeypatch):
    """Return a function that scores the test text. It returns the loss in bits and the number of scored tokens."""

    def score(*flags):
        found, original = [], command.eval_lm

        def record_score(models, source_dictionary, batch_iterator, *args, **kwargs):
            batches = list(batch_iterator)
            result = original(models, source_dictionary, batches, *args, **kwargs)
            count = sum(int(batch["target"].ne(source_dictionary.pad()).sum()) for batch in batches)
            found.append((float(result["loss"]), count))
            return result

        with monkeypatch.context() as patched:
            patched.setattr(command, "eval_lm", record_score)
            run_fairseq("eval_lm", toy_data, "--path", checkpoint, "--cpu", "--num-workers", 0, *flags)
        return found[0]

    return score


def reference(checkpoint, data):
    """Slow reference: return the loss in bits, summed block by block, and the number of tokens of the test text."""
    models, _, task = checkpoint_utils.load_model_ensemble_and_task([str(checkpoint)])
    sentences = data_utils.load_indexed_dataset(str(data / "test"), task.dictionary)
    text = torch.cat([sentences[i] for i in range(len(sentences))]).long()
    total, model = 0.0, models[0].eval()
    for start in range(0, len(text), BLOCK):
        target = text[start : start + BLOCK]
        context = text[start - 1 : start] if start else torch.tensor([task.dictionary.eos()])
        inputs = torch.cat([context, target[:-1]])
        scores = model(inputs[None])[0][0].log_softmax(-1)
        total -= scores.gather(1, target[:, None]).sum().item()
    return total / len(text) / math.log(2), len(text)


def test_blocks_have_the_size_of_training_by_default(score_text, checkpoint, toy_data):
    expected, tokens = reference(checkpoint, toy_data)
    assert tokens > 3 * BLOCK and expected > 1
    loss, count = score_text()
    assert (loss, count) == (pytest.approx(expected, abs=1e-5), tokens)
    assert score_text("--tokens-per-sample", BLOCK) == (loss, count)


def test_the_context_window_is_part_of_a_block(score_text):
    loss, count = score_text("--context-window", 3)
    assert score_text("--context-window", 3, "--tokens-per-sample", BLOCK) == (loss, count)


@pytest.mark.parametrize(
    "flags, message",
    [
        (
            ("--tokens-per-sample", 20),
            r"--tokens-per-sample 20: (\d) of (\d) blocks, with (\d+) of (\d+) tokens, are longer than the model's 8 positions, "
            "so the model cannot score them; give --sample-break-mode none --tokens-per-sample 8, or give --skip-invalid-",
        ),
        (("--context-window", 8), "--context-window 8: must be less than --tokens-per-sample 8, which counts"),
        (
            ("--context-window", 16, "--tokens-per-sample", 16),
            "--context-window 16: must be less than --tokens-per-sam",
        ),
        (("--context-window", -1), "--context-window -1: must be at least 0"),
        (
            ("--context-window", 14, "--tokens-per-sample", 20),
            "--tokens-per-sample 20: blocks including --context-window 14 are longer than the model's 8 positions; give",
        ),
        (
            ("--tokens-per-sample", 2000, "--skip-invalid-size-inputs-valid-test"),
            "all 1 samples are longer than the limit of 8 tokens",
        ),
        (
            ("--num-shards", 500, "--shard-id", 499),
            r"--shard-id 499: this part is empty, because the data has only \d+ batches; give a smaller --num-shards",
        ),
    ],
)
def test_flags_that_skip_tokens_are_refused(score_text, flags, message):
    with pytest.raises(InputError, match=f"^{message}"):
        score_text(*flags)


def test_blocks_are_skipped_on_request(score_text, checkpoint, toy_data):
    tokens = reference(checkpoint, toy_data)[1]
    size = next(size for size in range(BLOCK + 1, 2 * BLOCK) if 0 < tokens % size <= BLOCK)
    blocks, last = ("--tokens-per-sample", size), tokens % size
    assert score_text(*blocks, "--skip-invalid-size-inputs-valid-test")[1] == last


def test_a_training_without_samples_is_refused(toy_data, tmp_path):
    longer = ["--tokens-per-sample", 20, "--max-target-positions", 8, "--save-dir", tmp_path / "ck"]
    line, status = commands.error_of(toy_data, *longer, "--max-update", 1, "--max-epoch", 2, begin=[*LM])
    assert status == 2 and "samples are longer than the limit of 8 tokens" in line
