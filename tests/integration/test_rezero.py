"""--rezero with fairseq's commands: training, resuming, scoring, exports that store the trained gains, and commands that refuse it."""

from argparse import Namespace
from functools import partial

import pytest

from fairseq_reservoir import cli
from fairseq_reservoir.checkpoint.meta_checkpoint import open_checkpoint
from fairseq_reservoir.checkpoint.plain_transformer import why_not_plain
from tests.support import commands

FLAGS = """--task language_modeling --tokens-per-sample 16 --sample-break-mode eos --arch reservoir_transformer_lm --rezero
    --reservoir-decoder LTFL --decoder-embed-dim 16 --decoder-ffn-embed-dim 24 --decoder-attention-heads 2 --decoder-layerdrop 0.2
    --share-decoder-input-output-embed --fast --no-epoch-checkpoints --disable-validation --max-update 10""".split()
GAINS = [f"decoder.layers.{layer}.rezero_gain" for layer in range(4)]
train, error_of = partial(commands.train, begin=commands.RUN), partial(commands.error_of, begin=commands.RUN)


@pytest.fixture(scope="module")
def trained(toy_data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("rezero")
    return train(toy_data, *FLAGS, "--save-interval-updates", 6, "--save-dir", folder), folder


def test_gains_are_trained_and_other_tensors_of_frozen_layers_are_not(trained):
    run, _ = trained
    for name, tensor in run.weights.items():
        moved = not tensor.equal(run.initial[name])
        if name in GAINS:
            assert moved and not run.initial[name].any()
        elif ".layers.1." in name or ".layers.2." in name:
            assert not moved


def test_training_resumes_bit_for_bit_and_only_with_rezero(trained, toy_data):
    run, folder = trained
    flags = [*FLAGS, "--no-save", "--restore-file", folder / "checkpoint_1_6.pt"]
    assert train(toy_data, *flags).losses == run.losses[6:]
    line, status = error_of(toy_data, *(flag for flag in flags if flag != "--rezero"))
    assert status == 2 and "--rezero not given: the checkpoint was trained with this flag; give it" in line


def test_an_export_without_frozen_tensors_stores_the_gains(trained, tmp_path):
    run, folder = trained
    out = tmp_path / "model.safetensors"
    cli.main(["export", str(folder / "checkpoint_last.pt"), str(out), "--regenerate"])
    loaded = open_checkpoint(str(out)).built().state_dict()
    assert loaded.keys() == run.weights.keys()
    assert all(tensor.equal(run.weights[name]) for name, tensor in loaded.items())
    assert out.stat().st_size < (folder / "checkpoint_last.pt").stat().st_size / 3


def test_fairseqs_transformer_and_ctranslate2_have_no_gains():
    assert (
        why_not_plain(Namespace(rezero=True)) == "--rezero: fairseq's transformer has no gains of residual connections"
    )
