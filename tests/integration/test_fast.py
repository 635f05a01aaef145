"""``--fast`` in fairseq's trainer: the same model and losses up to rounding, log lines, resuming, checkpoints."""

import logging

import pytest
import torch
from fairseq.modules import MultiheadAttention
from fairseq.optim.adam import Adam

from fairseq_reservoir import cli
from fairseq_reservoir.speed.fast_adam import FastAdam
from fairseq_reservoir.speed.fast_attention import FastAttention
from fairseq_reservoir.speed.fast_loss import FastLoss
from fairseq_reservoir.speed.loss_decoder import LossDecoder
from tests.support import miniature
from tests.support.commands import RUN, error_of, load, train

SIZES = "--encoder-embed-dim 16 --encoder-ffn-embed-dim 24 --encoder-attention-heads 2 --decoder-attention-heads 2"
LAYERS = "--encoder-layers 2 --decoder-layers 2"
LM = "--task language_modeling --tokens-per-sample 12 --decoder-embed-dim 16 --decoder-ffn-embed-dim 24 --decoder-attention-heads 2"
SMOOTHED = "--criterion label_smoothed_cross_entropy --label-smoothing 0.1"
MODELS = {
    "L": f"--arch reservoir_transformer {SIZES} {LAYERS} {SMOOTHED}",
    "every kind": f"--arch reservoir_transformer {SIZES} --reservoir-encoder LTFgCMS --reservoir-decoder LTCSL {SMOOTHED}",
    "tied, frozen embeddings": f"--arch reservoir_transformer {SIZES} {LAYERS} --share-all-embeddings --freeze emb {SMOOTHED}",
    "pre-norm, adapters": f"--arch reservoir_transformer {SIZES} --reservoir-encoder LT --decoder-layers 1 --freeze"
    f" encoder.att --frozen-adapter lora "
    f"--encoder-normalize-before --decoder-normalize-before {SMOOTHED}",
    "recomputed": f"--arch reservoir_transformer {SIZES} --reservoir-encoder LT --decoder-layers 2 --checkpoint-activations {SMOOTHED}",
    "masks": f"--arch supermask_one_layer_transformer {SIZES} {LAYERS} --share-all-embeddings {SMOOTHED}",
    "masks, untied": f"--arch supermask_one_layer_transformer {SIZES} {LAYERS} {SMOOTHED}",
    "frozen_A": f"--arch frozen_transformer {SIZES} {LAYERS} --freeze encoder.ffn {SMOOTHED}",
    "cross entropy": f"--arch reservoir_transformer {SIZES} --reservoir-encoder LT --decoder-layers 1 --criterion cross_entropy",
    "language model": f"--arch reservoir_transformer_lm {LM} --reservoir-decoder LTF",
    "frozen language model": f"--arch frozen_transformer_lm {LM} --decoder-layers 2 --freeze ffn --optimizer freeze_skip",
    "no fast loss": f"--arch reservoir_transformer {SIZES} {LAYERS} --report-accuracy {SMOOTHED}",
    "adaptive": f"--arch reservoir_transformer {SIZES} {LAYERS} --adaptive-softmax-cutoff 5,8 --criterion"
    f" adaptive_loss --ddp-backend legacy_ddp",
}
FLAGS = "--lr 0.001 --clip-norm 1 --weight-decay 0.01 --batch-size 8 --disable-validation --no-save".split()


PRODUCTS = (
    "the faster of torch's and oneDNN's, measured at the start; "
    "oneDNN's saved 0.3 of stock fairseq's time on an AMD EPYC with AVX-512"
)


def both(data, model, *flags):
    flags = [*model.split(), *FLAGS, *flags]
    return train(data, *flags, begin=RUN), train(data, *flags, "--fast", begin=RUN)


# tests/models/test_fast_gradients.py compares the gradients of these models too. Other tests here train L and "no fast loss".
REPEATED = ("L", "no fast loss", "masks, untied", "language model")


@pytest.mark.parametrize("model", [pytest.param(m, marks=pytest.mark.slow) if m in REPEATED else m for m in MODELS])
def test_without_dropout_losses_and_weights_are_the_same_up_to_rounding(toy_data, model):
    slow, fast = both(toy_data, MODELS[model], "--dropout", 0, "--max-update", 15)
    assert slow.losses[-1] < slow.losses[0] and fast.losses == pytest.approx(slow.losses, rel=1e-4)
    assert fast.losses != slow.losses and list(fast.weights) == list(slow.weights)
    assert type(fast.model).__name__ == type(slow.model).__name__
    for name, tensor in slow.model.named_parameters():
        found = dict(fast.model.named_parameters())[name]
        assert tensor.requires_grad == found.requires_grad
        if name.endswith("k_proj.bias"):
            continue  # its gradient is only rounding error, which Adam scales to the size of any other
        if tensor.requires_grad:
            torch.testing.assert_close(found, tensor, rtol=1e-3, atol=2e-4)
        else:
            assert found.equal(tensor)


@pytest.mark.slow
@pytest.mark.parametrize(
    "model",
    [
        "--arch reservoir_transformer_tiny --reservoir-encoder LTL",
        "--arch frozen_transformer_tiny --freeze encoder.ffn",
    ],
)
def test_two_hundred_updates_on_real_sentences(run_fairseq, tmp_path, model):
    sides = miniature.real("multi30k/train", ("en", "de"), 4000)
    if sides is None:
        pytest.skip("../shared/data/multi30k is absent")
    for language, sentences in zip(("en", "de"), sides):
        (tmp_path / f"train.{language}").write_text("\n".join(sentences) + "\n")
    text = "--source-lang en --target-lang de --joined-dictionary --nwordssrc 3000".split()
    run_fairseq("preprocess", *text, "--trainpref", tmp_path / "train", "--destdir", tmp_path / "bin")
    # With a learning-rate warm-up, because at 0.001 from the first update rounding errors grow beyond 1e-4.
    rate = "--lr 0.001 --lr-scheduler inverse_sqrt --warmup-updates 800 --adam-betas (0.9,0.98) --clip-norm 1"
    flags = f"{model} --dropout 0 {rate} {SMOOTHED} --max-update 200 --max-tokens 500 --disable-validation --no-save".split()
    slow, fast = (train(tmp_path / "bin", *flags, *more, begin=_BY_TOKENS) for more in ([], ["--fast"]))
    assert len(slow.losses) == 200 and slow.losses[-1] < 0.8 * slow.losses[0]
    assert fast.losses == pytest.approx(slow.losses, rel=1e-4)


_BY_TOKENS = [*RUN[: RUN.index("--batch-size")], *RUN[RUN.index("--batch-size") + 2 :]]


def test_the_parts_are_there_and_without_the_flag_none_of_them(toy_data):
    slow, fast = both(toy_data, MODELS["every kind"], "--max-update", 1)
    for run, expected in ((fast, True), (slow, False)):
        attentions = [m for m in run.model.modules() if isinstance(m, MultiheadAttention)]
        assert attentions and all(isinstance(m, FastAttention) == expected for m in attentions)
        assert isinstance(run.model.decoder, LossDecoder) == isinstance(run.trainer.criterion, FastLoss) == expected
        assert isinstance(run.trainer.optimizer.optimizer, Adam)
        assert isinstance(run.trainer.optimizer.optimizer, FastAdam) == expected


def test_bf16_is_as_near_as_its_rounding(toy_data):
    slow, fast = both(toy_data, MODELS["tied, frozen embeddings"], "--dropout", 0, "--max-update", 10, "--bf16")
    assert fast.losses == pytest.approx(slow.losses, rel=1e-2)


def test_resuming_is_bit_exact(toy_data, tmp_path):
    dropout = "--dropout 0.1 --attention-dropout 0.2 --activation-dropout 0.1".split()
    flags = [*MODELS["every kind"].split(), *dropout, "--disable-validation", "--fast"]
    whole = train(toy_data, *flags, "--max-update", 8, "--save-dir", tmp_path / "whole", begin=RUN)
    train(toy_data, *flags, "--max-update", 5, "--save-dir", tmp_path / "part", begin=RUN)
    rest = train(toy_data, *flags, "--max-update", 8, "--save-dir", tmp_path / "part", begin=RUN)
    assert rest.losses == whole.losses[5:]
    assert all(tensor.equal(rest.weights[name]) for name, tensor in whole.weights.items())


@pytest.mark.parametrize(
    "model, first, then",
    [
        ("every kind", [], ["--fast"]),
        ("masks", ["--fast"], []),
        pytest.param("frozen_A", ["--fast"], [], marks=pytest.mark.slow),
    ],
)
def test_checkpoints_go_from_one_to_the_other(toy_data, tmp_path, model, first, then):
    flags = [*MODELS[model].split(), "--dropout", 0, "--lr", 0.001, "--disable-validation"]
    whole = train(toy_data, *flags, "--max-update", 8, "--no-save", begin=RUN)
    train(toy_data, *flags, *first, "--max-update", 5, "--save-dir", tmp_path, begin=RUN)
    rest = train(toy_data, *flags, *then, "--max-update", 8, "--save-dir", tmp_path, begin=RUN)
    assert rest.losses == pytest.approx(whole.losses[5:], rel=1e-4)
    stored = load(tmp_path)
    assert stored["optimizer_history"][-1]["criterion_name"] == "LabelSmoothedCrossEntropyCriterion"
    assert list(stored["model"]) == list(whole.weights)


def test_validation_has_the_same_loss(toy_data, tmp_path):
    flags = [*MODELS["L"].split(), "--dropout", 0, "--lr", 0.001, "--max-update", 4]
    best = [
        train(toy_data, *flags, *fast, "--save-dir", tmp_path / str(len(fast)), begin=RUN) for fast in ([], ["--fast"])
    ]
    slow, fast = (load(tmp_path / str(n))["extra_state"]["val_loss"] for n in (0, 1))
    assert fast == pytest.approx(slow, rel=1e-4) and best


@pytest.mark.parametrize(
    "flags, line",
    {
        SMOOTHED: "loss       on; on a CPU, padding is not projected to the vocabulary",
        f"{SMOOTHED} --report-accuracy": "loss       off: --report-accuracy reads all logits",
        f"{SMOOTHED} --ignore-prefix-size 1": "loss       off: --ignore-prefix-size is not supported",
        "--optimizer sgd": "optimizer  off: only for --optimizer adam",
        "--optimizer freeze_skip": "optimizer  on, Adam in one pass",
        "--optimizer adam --memory-efficient-bf16": "optimizer  off: --memory-efficient-bf16 keeps no weights in float32",
        "--dropout 0.1": "dropout    on, ",
        "--dropout 0": "dropout    off: the model has no dropout",
    }.items(),
)
def test_the_plan_lists_the_parts_in_use(flags, line, capsys):
    command = ["plan", "--arch", "reservoir_transformer_tiny", *flags.split()]
    cli.main([*command, "--fast"])
    assert line in capsys.readouterr().out
    cli.main(command)
    assert line not in capsys.readouterr().out


@pytest.mark.parametrize(
    "half, adam, products, taken",
    [
        ([], "on, Adam in one pass", PRODUCTS, 1),
        (["--bf16"], "on, Adam in one pass", "off: only in fp32", 1),
        (
            ["--memory-efficient-bf16"],
            "off: --memory-efficient-bf16 keeps no weights in float32",
            "off: only in fp32",
            0,
        ),
    ],
)
def test_the_log_lists_the_parts_in_use(toy_data, caplog, monkeypatch, half, adam, products, taken):
    taken_at, update = [], FastAdam._update
    monkeypatch.setattr(FastAdam, "_update", lambda *args, **kwargs: taken_at.append(1) or update(*args, **kwargs))
    with caplog.at_level(logging.INFO):
        train(toy_data, *MODELS["no fast loss"].split(), *FLAGS, "--fast", *half, "--max-update", 1, begin=RUN)
    (text,) = (record.getMessage() for record in caplog.records if record.getMessage().startswith("--fast:"))
    assert text.splitlines()[1:] == [
        "  dropout    on, 6 places",
        "  attention  on, 6 of 6",
        "  loss       off: --report-accuracy reads all logits",
        f"  optimizer  {adam}",
        f"  products   {products}",
    ]
    assert len(taken_at) == taken


def test_fairseqs_own_architectures_refuse_it(toy_data):
    message, status = error_of(toy_data, "--arch", "transformer_tiny", "--fast", "--no-save", begin=RUN)
    assert status == 2 and "unrecognized arguments: --fast" in message
