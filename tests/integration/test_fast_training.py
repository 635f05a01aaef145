"""``--reservoir-fast-dropout`` and the fused criterion in fairseq's trainer."""

import pytest
import torch
from fairseq.modules.fairseq_dropout import FairseqDropout

from fairseq_reservoir.layers.fast_dropout import FastFairseqDropout
from tests.support.commands import train

MODEL = "--reservoir-encoder LTF --decoder-layers 1 --disable-validation".split()


def test_every_dropout_of_the_layers_is_a_fast_one(toy_data):
    run = train(toy_data, *MODEL, "--reservoir-fast-dropout", "--max-update", 1, "--no-save")
    kinds = {type(module) for module in run.model.modules() if isinstance(module, FairseqDropout)}
    assert kinds == {FastFairseqDropout}
    plain = train(toy_data, *MODEL, "--max-update", 1, "--no-save")
    assert not any(isinstance(module, FastFairseqDropout) for module in plain.model.modules())


def test_without_dropout_it_changes_nothing(toy_data):
    flags = [*MODEL, "--dropout", 0, "--max-update", 4, "--no-save"]
    assert train(toy_data, *flags).losses == train(toy_data, *flags, "--reservoir-fast-dropout").losses


def test_runs_are_repeatable_and_resume_bit_exactly(toy_data, tmp_path):
    flags = [*MODEL, "--reservoir-fast-dropout", "--dropout", 0.3, "--max-update", 8, "--no-epoch-checkpoints"]
    whole = train(toy_data, *flags, "--save-interval-updates", 5, "--save-dir", tmp_path / "whole")
    begun = ["--restore-file", tmp_path / "whole" / "checkpoint_1_5.pt"]
    rest = train(toy_data, *flags, *begun, "--save-dir", tmp_path / "part")
    assert len(rest.losses) == 3 and rest.losses == whole.losses[5:]
    other = train(toy_data, *MODEL, "--dropout", 0.3, "--max-update", 2, "--no-save")
    assert other.losses[1] != whole.losses[1]


@pytest.mark.parametrize(
    "engine",
    [
        pytest.param([], marks=pytest.mark.slow),
        ["--bf16"],
        ["--share-decoder-input-output-embed", "--update-freq", 2],
    ],
    ids=str,
)
def test_the_fused_criterion_trains_as_fairseqs(toy_data, engine):
    flags = [*MODEL, *engine, "--label-smoothing", 0.1, "--max-update", 6, "--lr", 0.001, "--no-save"]
    plain = train(toy_data, *flags, "--criterion", "label_smoothed_cross_entropy")
    fused = train(toy_data, *flags, "--criterion", "fused_label_smoothed_cross_entropy")
    assert fused.losses == pytest.approx(plain.losses, rel=1e-2 if "--bf16" in engine else 1e-5)
    tolerance = 2e-2 if "--bf16" in engine else 1e-3
    for name, _ in plain.model.named_parameters():
        assert torch.allclose(plain.weights[name].float(), fused.weights[name].float(), atol=tolerance), name


def test_losses_that_the_fused_criterion_leaves_to_fairseq(toy_data):
    flags = [*MODEL, "--label-smoothing", 0.1, "--ignore-prefix-size", 1, "--max-update", 3, "--no-save"]
    plain = train(toy_data, *flags, "--criterion", "label_smoothed_cross_entropy")
    assert train(toy_data, *flags, "--criterion", "fused_label_smoothed_cross_entropy").losses == plain.losses
