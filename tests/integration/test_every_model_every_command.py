"""Every model of the plugin in every suitable command of fairseq, and in ``from_pretrained``, after two updates of training.

Encoders alone generate no text, so RoBERTa has neither fairseq-interactive nor fairseq-eval-lm.
"""

import io
import math
import re
import sys
from types import SimpleNamespace

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_REGISTRY
from fairseq_cli import eval_lm as eval_lm_command

from tests.support.commands import RUN, train
from tests.support.letters import WITH_EVERY_KIND

ENCODER = "--encoder-embed-dim 16 --encoder-ffn-embed-dim 24 --encoder-attention-heads 2"
DECODER = "--decoder-embed-dim 16 --decoder-ffn-embed-dim 24 --decoder-attention-heads 2"
ENCODER_PLAN, DECODER_PLAN = WITH_EVERY_KIND.values()
FROZEN = "--freeze att --frozen-init glorot"
TASKS = {
    "translation": f"{ENCODER} {DECODER}",
    "language_modeling": f"--tokens-per-sample 16 --sample-break-mode eos {DECODER}",
    "masked_lm": f"--criterion masked_lm --tokens-per-sample 16 --sample-break-mode eos --max-positions 16 {ENCODER}",
}
MODELS = {
    "reservoir_transformer": ("translation", f"--reservoir-encoder {ENCODER_PLAN} --reservoir-decoder {DECODER_PLAN}"),
    "supermask_one_layer_transformer": ("translation", "--encoder-layers 2 --decoder-layers 2"),
    "frozen_transformer": ("translation", f"--encoder-layers 2 --decoder-layers 2 {FROZEN}"),
    "frozen_lightconv": ("translation", f"--encoder-kernel-size-list [3] --decoder-kernel-size-list [3] --encoder-layers 1 "
                         f"--decoder-layers 1 --encoder-conv-dim 16 --decoder-conv-dim 16 {FROZEN}"),
    "reservoir_transformer_lm": ("language_modeling", f"--reservoir-decoder {DECODER_PLAN}"),
    "supermask_one_layer_transformer_lm": ("language_modeling", "--decoder-layers 2"),
    "frozen_transformer_lm": ("language_modeling", f"--decoder-layers 2 {FROZEN}"),
    "reservoir_roberta": ("masked_lm", f"--reservoir-encoder {ENCODER_PLAN}"),
    "supermask_one_layer_roberta": ("masked_lm", "--encoder-layers 2"),
    "frozen_roberta": ("masked_lm", f"--encoder-layers 2 {FROZEN}"),
}  # fmt: skip
SENTENCES = (
    "--task sentence_prediction --criterion sentence_prediction --num-classes 2 --init-token 0 --separator-token 2"
).split()
NAMES = {task: [arch for arch, (kind, _) in MODELS.items() if kind == task] for task in TASKS}


@pytest.fixture(scope="module")
def models(toy_data, tmp_path_factory):
    """Return a function that returns a model's run and the path of its checkpoint. The model is trained at the first call."""
    trained = {}

    def get(arch):
        if arch not in trained:
            task, flags = MODELS[arch]
            folder = tmp_path_factory.mktemp(arch)
            words = f"--task {task} --arch {arch} {TASKS[task]} {flags} --max-update 2 --no-epoch-checkpoints"
            run = train(toy_data, *words.split(), "--save-dir", folder, begin=RUN)
            trained[arch] = SimpleNamespace(run=run, folder=folder, path=folder / "checkpoint_last.pt", task=task)
        return trained[arch]

    return get


# By default each model is loaded by one command or more.
USUAL = {
    "validate": ("reservoir_transformer", "supermask_one_layer_transformer_lm", "frozen_roberta"),
    "interactive": ("supermask_one_layer_transformer", "frozen_lightconv", "frozen_transformer", "reservoir_transformer_lm",
                    "frozen_transformer_lm"),
    "eval_lm": ("reservoir_transformer_lm",),
    "sentence_prediction": ("reservoir_roberta", "supermask_one_layer_roberta"),
}  # fmt: skip


def archs(command, *tasks):
    """Models of ``tasks``; those that are not usual for ``command`` are slow tests."""
    for task in tasks or TASKS:
        for arch in NAMES[task]:
            yield pytest.param(arch, marks=[] if arch in USUAL[command] else [pytest.mark.slow])


def pretrained(model, arch, data, **options):
    """The hub interface of ``from_pretrained``."""
    return ARCH_MODEL_REGISTRY[arch].from_pretrained(str(model.folder), "checkpoint_last.pt", str(data), **options)


@pytest.mark.parametrize("arch", archs("validate"))
def test_validate_finds_the_loss_of_training(arch, models, toy_data, run_fairseq, monkeypatch):
    model = models(arch)
    printed = []
    monkeypatch.setattr(
        "fairseq.logging.progress_bar.SimpleProgressBar.print", lambda bar, stats, **_: printed.append(stats)
    )
    flags = ["--task", model.task, "--cpu", "--batch-size", 4, "--num-workers", 0, "--log-format", "simple"]
    flags += ["--criterion", "masked_lm"] if model.task == "masked_lm" else []
    run_fairseq("validate", toy_data, "--path", model.path, *flags)
    loss = checkpoint_utils.load_checkpoint_to_cpu(str(model.path))["extra_state"]["val_loss"]
    assert printed[0]["loss"] == pytest.approx(loss, abs=2e-3) and 0 < loss < 10


def said(lines, key):
    """Output of fairseq-interactive after ``key``, by the number of the input."""
    return {int(n): text for n, text in re.findall(rf"^{key}-(\d+)\t(?:\S+\t)?(.*)$", lines, flags=re.MULTILINE)}


@pytest.mark.parametrize("arch", archs("interactive", "translation", "language_modeling"))
def test_interactive_equals_from_pretrained(arch, models, toy_data, run_fairseq, monkeypatch, capsys):
    model, inputs = models(arch), ["a b c", "d e"]
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(inputs) + "\n"))
    as_task = ["--task", model.task, "--beam", 2, "--max-len-b", 8, "--cpu"]
    run_fairseq("interactive", toy_data, "--path", model.path, *as_task)
    answers = said(capsys.readouterr().out, "H")
    hub = pretrained(model, arch, toy_data)
    say = hub.translate if model.task == "translation" else hub.sample
    expected = say(inputs, beam=2, max_len_b=8)
    assert [answers[0], answers[1]] == expected and expected == [say([text], beam=2, max_len_b=8)[0] for text in inputs]
    if model.task == "language_modeling":
        assert all(answer.startswith(text) for answer, text in zip(expected, inputs))


@pytest.mark.parametrize("arch", archs("eval_lm", "language_modeling"))
def test_eval_lm_finds_the_loss_of_training(arch, models, toy_data, run_fairseq, monkeypatch):
    model, results, original = models(arch), [], eval_lm_command.eval_lm
    keep = lambda *args, **kwargs: results.append(original(*args, **kwargs)) or results[0]  # noqa: E731
    monkeypatch.setattr(eval_lm_command, "eval_lm", keep)
    blocks = "--gen-subset valid --sample-break-mode eos --tokens-per-sample 16 --batch-size 4 --num-workers 0 --cpu"
    run_fairseq("eval_lm", toy_data, "--path", model.path, *blocks.split())
    loss = checkpoint_utils.load_checkpoint_to_cpu(str(model.path))["extra_state"]["val_loss"]
    # both in bits
    assert results[0]["loss"] == pytest.approx(loss, abs=2e-3)


@pytest.mark.parametrize("arch", NAMES["masked_lm"])
def test_fill_mask_returns_the_models_prediction(arch, models, toy_data):
    model = models(arch)
    hub = pretrained(model, arch, toy_data, bpe=None)
    hub.bpe = SimpleNamespace(encode=str.strip, decode=" {}".format)
    answers = hub.fill_mask("a b <mask> d", topk=3)
    # a is entry 4, after fairseq's special symbols, and <mask> entry 12
    shares = model.run.model.eval()(torch.tensor([[0, 4, 5, 12, 7, 2]]))[0][0, 3].softmax(0)
    best = shares.topk(3)
    assert answers[0][1] == pytest.approx(float(best.values[0]))
    # fairseq prints neither <s> nor </s>
    words = [hub.task.source_dictionary[n] for n in best.indices.tolist() if n not in (0, 2)]
    assert [letter.strip() for *_, letter in answers] == words


@pytest.mark.parametrize("arch", archs("sentence_prediction", "masked_lm"))
def test_sentence_prediction_starts_from_the_pretrained_model(arch, models, moods, run_fairseq, tmp_path):
    # Frozen tensors have the checkpoint's values, so drawing them again is refused.
    spec = MODELS[arch][1].replace(" --frozen-init glorot", "")
    model, flags = models(arch), f"--arch {arch} --max-positions 16 {ENCODER} {spec}".split()
    start = ["--finetune-from-model", model.path, "--max-update", 2, "--no-epoch-checkpoints", "--save-dir", tmp_path]
    run = train(moods, *SENTENCES, *flags, *start, begin=RUN)
    before = checkpoint_utils.load_checkpoint_to_cpu(str(model.path))["model"]
    # random tensors, and the language model's head, which classification does not train
    kept = {name for name in model.run.model.recipes if name in before} | {"encoder.lm_head.dense.weight"}
    assert len(kept) > 8 and all(torch.equal(run.weights[name], before[name]) for name in kept)
    path = tmp_path / "checkpoint_last.pt"
    run_fairseq("validate", moods, *SENTENCES, "--path", path, "--cpu", "--batch-size", 8, "--num-workers", 0)
    hub = ARCH_MODEL_REGISTRY[arch].from_pretrained(str(tmp_path), path.name, str(moods), bpe=None).eval()
    shares = hub.predict("sentence_classification_head", torch.tensor([[0, 5, 6, 2]])).exp()
    assert shares.shape == (1, 2) and math.isclose(float(shares.sum()), 1, rel_tol=1e-5)


def test_no_model_is_forgotten():
    assert {name for name in MODEL_REGISTRY if name.startswith(("reservoir_", "supermask_"))} <= MODELS.keys()
