"""Trainings with ``--cuda-graphs`` on any device. On a CPU a stand-in takes the place of CUDA graphs."""

from contextlib import contextmanager
from unittest.mock import patch

from fairseq_reservoir.options.reading import read
from fairseq_reservoir.options.speed_options import FastOptions
from fairseq_reservoir.speed.graphs import recorder, start
from fairseq_reservoir.speed.graphs.steps import GraphedSteps


@contextmanager
def recording(device):
    """Let a training with ``--cuda-graphs`` on a CPU record its steps with the stand-in. On a GPU nothing is changed."""

    def begin(trainer, masks):
        if not read(FastOptions, trainer.cfg.model).cuda_graphs:
            return None
        assert start.unsupported_reason(trainer) is None
        return start.use(trainer, masks, recorder.Rerun())

    if device == "cuda":
        yield
    else:
        with patch.object(start, "start", begin):
            yield


@contextmanager
def never_recording():
    """Pad batches and run every step as the first of its shape."""
    with patch.object(GraphedSteps, "_may_record", lambda self, shape: False):
        yield
