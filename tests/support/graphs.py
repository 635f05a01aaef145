"""Trainings with ``--cuda-graphs`` on any device. On a CPU a stand-in takes the place of CUDA graphs."""

from contextlib import contextmanager
from unittest.mock import patch

from fairseq_reservoir.options.reading import read
from fairseq_reservoir.options.speed_options import FastOptions
from fairseq_reservoir.speed.graphs import start
from fairseq_reservoir.speed.graphs.steps import GraphedSteps


class Rerun:
    """Stand-in for ``GraphRecorder``: a replay calls the function again and writes to the result of the first replay."""

    def measured(self, run):
        return run(), 0

    def has_room(self, needed):
        return True

    def record(self, run, needed):
        written = []

        def replay():
            result = run()
            if not written:
                written.extend(result)
            for old, new in zip(written, result):
                old.copy_(new)
            return written

        return replay

    def forget(self):
        pass

    def mib(self):
        return 0


@contextmanager
def recording(device):
    """Let a training with ``--cuda-graphs`` on a CPU record its steps with the stand-in. On a GPU nothing is changed."""

    def begin(trainer, masks):
        if not read(FastOptions, trainer.cfg.model).cuda_graphs:
            return None
        assert start.unsupported_reason(trainer) is None
        return start.use(trainer, masks, Rerun())

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
