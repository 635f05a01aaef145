"""Runs of fairseq-train for tests, in this process or in a new one."""

import io
import os
import subprocess
import sys
import warnings
from contextlib import redirect_stderr
from pathlib import Path
from unittest.mock import patch

import fairseq_cli.train
from fairseq import checkpoint_utils
from fairseq.logging import metrics

import fairseq_reservoir
from fairseq_reservoir.fairseq_repairs import stopping
from tests.support.warm_start import run_command

USER_DIR = str(Path(fairseq_reservoir.__file__).parent)
# Flags for a run of hundreds of updates in seconds, and a small translation model. Later flags override earlier ones.
RUN = (
    "--cpu --dropout 0.1 --optimizer adam --lr 0.01 --batch-size 4 --max-epoch 100"
    " --num-workers 0 --log-format none --no-progress-bar --seed 3"
).split()
TINY = (
    "--arch reservoir_transformer_tiny --encoder-embed-dim 16 --encoder-ffn-embed-dim 24 --encoder-attention-heads 2"
    " --decoder-attention-heads 2"
).split() + RUN


class Training:
    """A finished run: its trainer, the initial weights, and the summed loss of every update."""

    trainer = None
    initial = None
    losses = ()

    @property
    def model(self):
        return self.trainer.get_model()

    @property
    def weights(self):
        return self.model.state_dict()


def train(data, *flags, begin=TINY) -> Training:
    """Run fairseq-train with the plugin, ``begin`` and then ``flags``, in this process.

    Args:
        data: folder of binarised data.
        flags: command-line flags, including ``--save-dir`` or ``--no-save``.
        begin: flags before them.
    """
    forget_earlier_runs()
    run = Training()

    class RecordingTrainer(fairseq_cli.train.Trainer):
        def __init__(self, cfg, task, model, *args, **kwargs):
            run.trainer, run.losses = self, []
            run.initial = {name: tensor.clone() for name, tensor in model.state_dict().items()}
            super().__init__(cfg, task, model, *args, **kwargs)

        def _reduce_and_log_stats(self, logging_outputs, sample_size, grad_norm=None):
            if grad_norm is not None:
                run.losses.append(sum(float(log["loss"]) for log in logging_outputs))
            return super()._reduce_and_log_stats(logging_outputs, sample_size, grad_norm)

    with (
        patch.object(sys, "argv", command_line(data, *flags, begin=begin)),
        patch.object(fairseq_cli.train, "Trainer", RecordingTrainer),
    ):
        fairseq_cli.train.cli_main()
    return run


def error_of(data, *flags, begin=TINY) -> tuple[str, int]:
    """Run fairseq-train in this process with ``flags`` that it refuses. Return its stderr and exit status.

    The interpreter would call ``sys.excepthook`` with the error. Here it is called explicitly. Python's warnings are removed.
    """
    errors, status = io.StringIO(), None
    with (
        redirect_stderr(errors),
        patch.object(sys, "argv", command_line(data, *flags, begin=begin)),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        try:
            train(data, *flags, begin=begin)
            status = 0
        except SystemExit as leaving:
            status = leaving.code
        except Exception as error:
            try:
                sys.excepthook(type(error), error, error.__traceback__)
                status = 1
            except SystemExit as leaving:
                status = leaving.code
    return errors.getvalue(), status


def start_training(data, *flags, fresh=False) -> subprocess.CompletedProcess:
    """Run fairseq-train with the same flags as ``train`` in a new process and wait for its end.

    Args:
        data, flags: as for ``train``.
        fresh: start the console script, as a user does; otherwise torch and fairseq are already imported (``warm_start``).
    """
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    if not fresh:
        return run_command("fairseq-train", *command_line(data, *flags)[1:], env=environment)
    program = Path(sys.executable).parent / "fairseq-train"
    return subprocess.run([program, *command_line(data, *flags)[1:]], capture_output=True, text=True, env=environment)


def command_line(data, *flags, begin=TINY) -> list[str]:
    return ["fairseq-train", str(data), "--user-dir", USER_DIR, *begin, *map(str, flags)]


def forget_earlier_runs():
    """Reset fairseq's state between runs in one process: the best validation loss and the meters."""
    stopping.forget_earlier_runs()
    metrics.reset()


def load(save_dir, name="checkpoint_last.pt") -> dict:
    return checkpoint_utils.load_checkpoint_to_cpu(str(Path(save_dir) / name))
