"""Reasons against recording, lines in the log, and losses of padded batches."""

import logging

import pytest
import torch
from fairseq.criterions.cross_entropy import CrossEntropyCriterion

from fairseq_reservoir.speed.graphs import criteria, start
from fairseq_reservoir.speed.graphs.steps import GraphedSteps
from tests.support.commands import RUN, train
from tests.support.graphs import Rerun, recording

SMALL = "--decoder-layers 1 --disable-validation --no-save".split()
LAYERS = [*SMALL, "--max-update", "1", "--cuda-graphs"]
REASONS = {
    "--checkpoint-activations": "it does not work with --checkpoint-activations",
    "--quant-noise-pq 0.1": "it does not work with --quant-noise-pq",
    "--encoder-layerdrop 0.5": "LayerDrop runs different layers in every update",
    "--reservoir-encoder F --freeze-cache memory --frozen-prefix-no-dropout --freeze encoder.emb": "it does not work with --freeze-cache",
    "--reservoir-encoder LF --backskip identity": "it does not work with --backskip",
    "--criterion label_smoothed_cross_entropy --report-accuracy": "--report-accuracy copies values from the GPU to the CPU",
    "--left-pad-target": "it does not work with --left-pad-target",
}


@pytest.mark.parametrize("flags", REASONS)
def test_reasons(toy_data, flags):
    run = train(toy_data, *LAYERS, *flags.split())
    assert run.trainer.graphs is None  # this is a CPU
    assert start.unsupported_reason(run.trainer) == REASONS[flags]


_OTHER_SIZES = "--encoder-embed-dim 8 --max-update 1 --disable-validation --no-save --cuda-graphs"
_CONVOLUTIONS = (
    f"{_OTHER_SIZES} --freeze encoder --decoder-embed-dim 8 --encoder-layers [(8,3)] --decoder-layers [(8,3)]"
)
OTHER_MODELS = {
    f"--arch frozen_fconv {_CONVOLUTIONS}": "FConvEncoder copies values from the GPU to the CPU",
    f"--arch frozen_fconv_self_att {_CONVOLUTIONS}": "FConvEncoder copies values from the GPU to the CPU",
    f"--arch frozen_masked_lm --task masked_lm --criterion masked_lm --tokens-per-sample 16 {_OTHER_SIZES} --freeze att --encoder-layers 1 "
    "--encoder-ffn-embed-dim 8 --encoder-attention-heads 2": "FrozenMaskedLMModel is not a RoBERTa",
}


@pytest.mark.parametrize("flags", OTHER_MODELS)
def test_models_of_fairseq_that_cannot_be_recorded(toy_data, flags):
    run = train(toy_data, *flags.split(), begin=RUN)
    assert start.unsupported_reason(run.trainer) == OTHER_MODELS[flags]


def test_a_watchdog_sees_no_replays(toy_data):
    """With --heartbeat-timeout, fairseq's wrapper of several ranks ends a training whose forward pass is not called."""
    trainer = train(toy_data, *LAYERS).trainer
    parallel = trainer.cfg.distributed_training
    parallel.heartbeat_timeout = 60
    assert start.unsupported_reason(trainer) is None  # a single rank has no wrapper
    parallel.distributed_world_size, parallel.ddp_backend = 2, "legacy_ddp"
    assert start.unsupported_reason(trainer) == (
        "it does not work with --heartbeat-timeout, because replays do not count as progress"
    )


def test_a_training_on_a_cpu_says_so_in_one_line(toy_data, caplog):
    caplog.set_level(logging.INFO)
    run = train(toy_data, *LAYERS)
    assert start.unsupported_reason(run.trainer) is None
    lines = [record.getMessage() for record in caplog.records if "cuda-graphs:" in record.getMessage()]
    assert lines == ["--cuda-graphs: no effect: this training runs on a CPU"]


def test_the_log_says_how_many_shapes_and_steps(toy_data, caplog):
    caplog.set_level(logging.INFO)
    with recording("cpu"):
        flags = "--max-epoch 2 --no-save --cuda-graphs --cuda-graph-buckets 2 --batch-size 16".split()
        run = train(toy_data, "--encoder-layers", 1, "--decoder-layers", 1, *flags)
    lines = [record.getMessage() for record in caplog.records if "cuda-graphs:" in record.getMessage()]
    # 160 sentences in 10 batches. In each epoch, two shapes: a first step and a recorded one, then replays.
    assert lines[0].startswith("--cuda-graphs: 10 batches padded to 2 shapes, ")
    assert lines[1].startswith("--cuda-graphs: 2 recorded shapes, 8 of 10 steps replayed, ")
    assert lines[2].startswith("--cuda-graphs: 2 recorded shapes, 18 of 20 steps replayed, ")
    assert run.trainer.graphs.tokens[1] >= run.trainer.graphs.tokens[0] > 0


@pytest.mark.parametrize(
    "more",
    [
        pytest.param("--sentence-avg", marks=pytest.mark.slow),
        "--criterion label_smoothed_cross_entropy --label-smoothing 0.1",
        "--fast",
    ],
)
def test_a_replayed_training_is_the_usual_one_up_to_rounding(toy_data, more):
    """Without dropout the padding changes nothing but the order of sums."""
    flags = [*SMALL, *"--encoder-layers 2 --dropout 0 --max-update 25 --batch-size 8 --lr 0.001".split()]
    usual = train(toy_data, *flags, *more.split())
    with recording("cpu"):
        graphed = train(toy_data, *flags, *more.split(), "--cuda-graphs", "--cuda-graph-buckets", 2)
    assert graphed.trainer.graphs.kinds["replayed"] > 15
    assert graphed.losses == pytest.approx(usual.losses, rel=1e-4)


def test_a_masked_language_model_up_to_rounding(toy_data):
    flags = "--task masked_lm --arch reservoir_roberta --criterion masked_lm --tokens-per-sample 16 --sample-break-mode eos".split()
    flags += "--max-positions 16 --encoder-embed-dim 16 --encoder-ffn-embed-dim 24 --encoder-attention-heads 2 --encoder-layers 2".split()
    flags += "--dropout 0 --attention-dropout 0 --max-update 15 --batch-size 8 --no-save --disable-validation --lr 0.001".split()
    usual = train(toy_data, *flags, begin=RUN)
    with recording("cpu"):
        graphed = train(toy_data, *flags, "--cuda-graphs", "--cuda-graph-buckets", 2, begin=RUN)
    assert graphed.trainer.graphs.kinds["replayed"] > 5
    assert graphed.losses == pytest.approx(usual.losses, rel=1e-4)


def test_too_little_memory_for_a_validation_drops_the_recordings(toy_data, monkeypatch):
    """fairseq repeats a validation step once. It fits only into the memory of the recordings."""
    with recording("cpu"):
        flags = [*SMALL, *"--encoder-layers 1 --max-update 4 --cuda-graphs --cuda-graph-buckets 1".split()]
        trainer = train(toy_data, *flags).trainer
    assert len(trainer.graphs.recordings) == 1
    usual, kept = trainer.task.valid_step, []

    def valid_step(*given):
        kept.append(len(trainer.graphs.recordings))
        if kept[-1]:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        return usual(*given)

    monkeypatch.setattr(trainer.task, "valid_step", valid_step, raising=False)
    trainer.task.load_dataset("valid")
    batches = trainer.get_valid_iterator("valid").next_epoch_itr(shuffle=False)
    assert trainer.valid_step(next(batches))["loss"] > 0
    assert kept == [1, 0]


def test_a_criterion_of_your_own_may_read_values():
    class Mine(CrossEntropyCriterion):
        def compute_loss(self, *given):
            return super().compute_loss(*given)

    reason = "Mine is not one of fairseq's cross entropies"
    assert criteria.unsupported_reason(Mine.__new__(Mine), None) == reason


def test_batches_of_another_iterator_are_not_padded(toy_data, caplog):
    """A task may return an iterator whose batches are not known before, such as fairseq's ``StreamingEpochBatchIterator``."""
    caplog.set_level(logging.INFO)
    run = train(toy_data, *LAYERS)
    steps = GraphedSteps(Rerun(), None)
    start.choose_buckets(run.trainer, steps, iter([]))
    assert steps.padder is None
    assert caplog.messages[-1] == "--cuda-graphs: no effect: the batches of list_iterator are not known in advance"
