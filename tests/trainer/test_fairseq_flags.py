"""Invalid flags that end fairseq with a traceback are refused here in one line, before any data is read."""

from importlib.util import find_spec

import pytest
from fairseq import options

from tests.support.commands import error_of, train

BEGIN = "--arch reservoir_transformer_tiny --cpu --no-save".split()
WRITES = "create it with fairseq-preprocess --destdir"


@pytest.mark.parametrize(
    "flags, message",
    [
        ("--batch-size 4", "--optimizer: is required; the usual choice is --optimizer adam"),
        (
            "--optimizer adam",
            "--max-tokens: this flag or --batch-size is required; give for example --max-tokens 4096",
        ),
        ("--optimizer adam --max-tokens 0", "--max-tokens 0: must be at least 1"),
        (
            "--optimizer adam --max-tokens 0 --batch-size 8",
            "--max-tokens 0: must be at least 1, because a training omits",
        ),
        ("--optimizer adam --max-tokens -1 --batch-size 8", "--max-tokens -1: must be at least 1, because a training"),
        ("--optimizer adam --batch-size 0", "--batch-size 0: means no limit, and --max-tokens sets no limit either"),
        (
            "--optimizer adam --max-tokens 9 --num-batch-buckets 3 --max-tokens-valid 0 --batch-size-valid 4",
            "--max-tokens-valid 0: must be at least 1 with --num-batch-buckets",
        ),
        ("--optimizer adam --batch-size -2", "--batch-size -2: must be at least 1"),
        ("--optimizer adam --batch-size 4 --update-freq 2,0", "--update-freq 0: must be at least 1"),
        ("--optimizer adam --batch-size 4 --log-interval 0", "--log-interval 0: must be at least 1"),
        ("--optimizer adam --batch-size 4 --num-workers -1", "--num-workers -1: must be from 0 to 1000"),
        ("--optimizer adam --batch-size 4 --validate-interval 0", "--validate-interval 0: must be at least 1"),
        ("--optimizer adam --batch-size 4 --save-interval 0", "--save-interval 0: must be at least 1"),
        (
            "--optimizer adam --batch-size 4 --required-batch-size-multiple 0",
            "--required-batch-size-multiple 0: must be at least 1",
        ),
        ("--optimizer adam --batch-size 4 --max-valid-steps -1", "--max-valid-steps -1: must be at least 0"),
        pytest.param(
            "--optimizer adam --batch-size 4 --write-checkpoints-asynchronously",
            "--write-checkpoints-asynchronously: needs the package iopath; run pip install iopath, or remove the flag",
            marks=pytest.mark.skipif(bool(find_spec("iopath")), reason="iopath is installed"),
        ),
        (
            "--optimizer adam --batch-size 4 --lr-scheduler inverse_sqrt --warmup-updates 0",
            "--warmup-updates 0: must be at least 1 with --lr-scheduler inverse_sqrt",
        ),
        (
            "--optimizer adam --batch-size 4 --lr-scheduler inverse_sqrt --lr 1e-3,1e-4",
            "--lr 0.001,0.0001: --lr-scheduler inverse_sqrt accepts one rate; give one, or use",
        ),
        (
            "--optimizer adam --batch-size 4 --arch frozen_roberta --task masked_lm --criterion masked_lm"
            " --random-token-prob 0.6 --leave-unmasked-prob 0.5",
            "--random-token-prob 0.6 and --leave-unmasked-prob 0.5: must add up to at most 1",
        ),
        (
            "--optimizer adam --batch-size 4 --arch frozen_roberta --task sentence_prediction --num-classes 2",
            "--criterion cross_entropy: does not fit --task sentence_prediction; give --criterion sentence_prediction",
        ),
        ("--optimizer adam --batch-size 4 --adam-betas foo", "--adam-betas foo: must be two numbers from 0 to below 1"),
        (
            "--optimizer adam --batch-size 4 --lr-scheduler polynomial_decay",
            "--total-num-update: not given, but required by --lr-scheduler polynomial_decay",
        ),
        ("--optimizer adam --lr abc", "--lr: 'abc' is neither a number nor a list of numbers separated by commas"),
        ("--optimizer adam --lr=", "--lr: '' is neither a number nor a list of numbers separated by commas"),
        ("--optimizer adam --max-tokens-valid abc", "--max-tokens-valid 'abc': must be a whole number"),
        ("--optimizer adam --batch-size 4 --batch-size-valid 2x", "--batch-size-valid '2x': must be a whole number"),
        ("--optimizer adam --update-epoch-batch-itr yes", "--update-epoch-batch-itr 'yes': must be true or false"),
        ("--optimizer adam --batch-size 4 --seed -1", "--seed -1: must be from 0 to 2147483647"),
        ("--optimizer adam --batch-size 4 --num-batch-buckets 3", "--num-batch-buckets 3: needs --max-tokens"),
        (
            "--optimizer adam --batch-size 4 --fp16",
            "--fp16: needs a GPU; on CPUs, give --bf16 or --memory-efficient-fp16 instead",
        ),
        ("--optimizer adam --lr 5e-4f", "--lr: '5e-4f' is neither a number"),
        ("--optimizer adam --update-freq 1,x", "--update-freq: '1,x' is neither a number"),
        ("--optimizer adam --save-dir=\\", "--save-dir=\\: ends in a backslash, which fairseq cannot read"),
        (
            "--optimizer adam --batch-size 4 --lr-scheduler triangular",
            "--max-lr: is required, because it has no default",
        ),
        (
            "--optimizer adam --batch-size 4 --tokenizer moses",
            "--source-lang and --target-lang: not given, but required by --tokenizer moses",
        ),
        (
            "--optimizer adam --batch-size 4 --lr-scheduler tri_stage --warmup-steps 5",
            "--decay-steps 0: must be at least 1 with --lr-scheduler tri_stage; or give --phase-ratio, such as",
        ),
        (
            "--optimizer adam --batch-size 4 --lr-scheduler tri_stage --phase-ratio (0.1,0.4,0.5)",
            "--phase-ratio (0.1, 0.4, 0.5): needs --max-update",
        ),
        (
            "--optimizer adam --batch-size 4 --lr-scheduler tri_stage --phase-ratio (0.25,0.25,0.25) --max-update 9",
            "--phase-ratio (0.25, 0.25, 0.25): must add up to 1, not 0.75",
        ),
        (
            "--optimizer adam --batch-size 4 --lr-scheduler tri_stage --phase-ratio (0.5,0.25,0.25) --max-update 3",
            "--phase-ratio (0.5, 0.25, 0.25): with --max-update 3, the last stage has no update, but needs at least 1",
        ),
        (
            "--optimizer adam --batch-size 4 --best-checkpoint-metric bleu",
            "--best-checkpoint-metric bleu: needs --eval-bleu",
        ),
        (
            "--optimizer adam --batch-size 4 --criterion label_smoothed_cross_entropy --best-checkpoint-metric accuracy",
            "--best-checkpoint-metric accuracy: needs --report-accuracy",
        ),
        (
            "--optimizer adam --batch-size 4 --best-checkpoint-metric valid_loss",
            "--best-checkpoint-metric valid_loss: must not start with valid_; give loss",
        ),
        ("--optimizer freeze_skip --batch-size 4 --adam-betas (0.9,1)", "--adam-betas (0.9,1): must be two numbers"),
        (
            "--optimizer adam --batch-size 4 --criterion adaptive_loss",
            "--ddp-backend pytorch_ddp: not supported with --criterion adaptive_loss; give --ddp-backend legacy_ddp",
        ),
        (
            "--optimizer adam --batch-size 4 --criterion adaptive_loss --ddp-backend legacy_ddp",
            "--criterion adaptive_loss: needs --adaptive-softmax-cutoff, such as 10000,50000",
        ),
        (
            "--optimizer adam --batch-size 4 --task multilingual_translation --lang-pairs en-de",
            "--arch reservoir_transformer_tiny: not supported with --task multilingual_translation, which needs a model for each",
        ),
        (
            "--optimizer adam --batch-size 4 --arch frozen_transformer --task semisupervised_translation --lang-pairs en-de",
            "--arch frozen_transformer: not supported with --task semisupervised_translation, which needs a model for each",
        ),
        (
            "--optimizer adam --batch-size 4 --arch frozen_transformer --task translation_lev",
            "--arch frozen_transformer: not supported with --task translation_lev, which needs a non-autoregressive model",
        ),
        (
            "--optimizer adam --batch-size 4 --arch frozen_nonautoregressive_transformer --criterion nat_loss",
            "--arch frozen_nonautoregressive_transformer: not supported with --task translation; give --task translation_lev",
        ),
        *(
            (
                f"--optimizer adam --batch-size 4 --arch supermask_one_layer_transformer --task denoising {flag}",
                "--mask-random: --task denoising and --arch supermask_one_layer_transformer have different flags of this name",
            )
            for flag in ("--mask-random 0.1", "--mask-random=0.1", "--mask-random")
        ),
    ],
)
def test_mistakes_are_one_line(tmp_path, flags, message):
    line, status = error_of(tmp_path / "none", *flags.split(), begin=BEGIN)
    assert status != 0 and message in line and line.count("\n") == 1


@pytest.mark.parametrize("criterion", ["wav2vec", "model"])
def test_lists_of_strings_may_be_empty(tmp_path, criterion):
    """The default of ``--log-keys`` on the command line is an empty list."""
    arguments = [str(tmp_path), "--optimizer", "adam", "--criterion", criterion, *BEGIN]
    assert options.parse_args_and_arch(options.get_training_parser(), arguments).log_keys == []


@pytest.mark.parametrize(
    "flags",
    [
        "--optimizer adam --max-tokens 4096 --batch-size -1",  # -1 means no limit in fairseq
        "--optimizer adam --max-tokens 4096 --max-tokens-valid 4e3 --update-epoch-batch-itr true --num-batch-buckets 3",
        "--optimizer sgd --batch-size 4 --num-workers 0 --update-freq 1,2",
        "--optimizer adam --batch-size 4 --adam-betas (0.9,0.98)",
        "--optimizer adam --batch-size 4 --lr-scheduler polynomial_decay --total-num-update 9",
        "--optimizer adam --batch-size 4 --lr-scheduler triangular --lr 0.01 --max-lr 0.1",
        "--optimizer adam --batch-size 4 --bpe sentencepiece",  # a training does not build it
        "--optimizer adam --batch-size 4 --scoring wer",
        "--optimizer adam --batch-size 4 --lr-scheduler tri_stage --decay-steps 1",
        "--optimizer adam --batch-size 4 --lr-scheduler tri_stage --phase-ratio (0.5,0.25,0.25) --max-update 4",
        "--optimizer adam --batch-size 4 --best-checkpoint-metric bleu --eval-bleu",
        "--optimizer adam --batch-size 4 --best-checkpoint-metric bleu --disable-validation",
        "--optimizer adam --batch-size 4 --best-checkpoint-metric ppl",
    ],
)
def test_valid_flags_pass_until_the_data_are_checked(tmp_path, flags):
    line, _ = error_of(tmp_path / "none", *flags.split(), begin=BEGIN)
    assert line.splitlines()[-1] == f"fairseq-train: error: DATA: {tmp_path}/none is not a folder; {WRITES}"


@pytest.mark.parametrize(
    "flags, message",
    [
        ("--max-tokens 3", "--max-tokens 3 (--max-tokens-valid in validation): a sentence is longer; raise the limit"),
        (
            "--batch-size 4 --share-all-embeddings --decoder-embed-dim 16",
            "--share-all-embeddings requires --encoder-embed-dim to match --decoder-embed-dim",
        ),
    ],
)
def test_mistakes_found_in_data_or_model_are_one_line(toy_data, flags, message):
    line, status = error_of(toy_data, *"--optimizer adam --max-update 1".split(), *flags.split(), begin=BEGIN)
    assert status != 0 and message in line.splitlines()[-1] and "Traceback" not in line


def test_learning_rate_falls_until_the_last_update(toy_data):
    """Without ``--total-num-update`` the decay of ``polynomial_decay`` lasts as long as the training."""
    flags = "--lr-scheduler polynomial_decay --max-update 4 --no-save --disable-validation".split()
    flags += ["--reservoir-encoder", "LF", "--decoder-layers", 1]
    assert train(toy_data, *flags).trainer.get_lr() == 0.0
    assert train(toy_data, *flags, "--total-num-update", 8).trainer.get_lr() == 0.005
