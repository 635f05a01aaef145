"""Run ``main`` of fairseq-train inside a benchmark's process, with a replaced function for the epochs."""

import contextlib
import gc
import io
import logging
import shlex
import tempfile
import traceback
from unittest.mock import patch

import fairseq_cli.train as fairseq_train
import torch
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

QUIET = "--no-save --disable-validation --no-progress-bar --log-format json --ddp-backend legacy_ddp"


class Messages(logging.Handler):
    """Log handler that keeps the messages that contain one of ``words``."""

    def __init__(self, *words):
        super().__init__()
        self.words, self.found = words, []

    def emit(self, record):
        message = record.getMessage()
        if any(word in message for word in self.words):
            self.found.append(message)


@contextlib.contextmanager
def kept_messages(*words):
    """Yield a list that receives the package's log messages with one of ``words``. No log line is printed."""
    handler, ours, root = Messages(*words), logging.getLogger("fairseq_reservoir"), logging.getLogger()
    before, disabled = (ours.level, ours.propagate, root.level), logging.root.manager.disable
    logging.disable(logging.NOTSET)
    ours.addHandler(handler)
    ours.setLevel(logging.INFO)
    ours.propagate = False
    root.setLevel(logging.ERROR)
    try:
        yield handler.found
    finally:
        logging.disable(disabled)
        ours.removeHandler(handler)
        ours.propagate = before[1]
        ours.setLevel(before[0])
        root.setLevel(before[2])


def configuration(data, flags, device):
    """Parse the flags of a training of ``data``.

    Raises:
        ValueError: fairseq's parser has refused a flag. The message has the last line of its output.
    """
    said = io.StringIO()
    words = [str(data), *shlex.split(QUIET), *(["--cpu"] if device == "cpu" else []), *shlex.split(flags)]
    try:
        with contextlib.redirect_stderr(said):
            arguments = options.parse_args_and_arch(options.get_training_parser(), words)
    except SystemExit:
        lines = said.getvalue().strip().splitlines() or ["the parser has ended without a message"]
        raise ValueError(lines[-1]) from None
    return convert_namespace_to_omegaconf(arguments)


def train(data, flags, device, train_epoch):
    """Call ``fairseq_cli.train.main`` with ``train_epoch`` in place of its function ``train``.

    Args:
        data: a binarised corpus.
        flags: flags of fairseq-train.
        device: "cpu" or "cuda".
        train_epoch: function of the arguments of ``fairseq_cli.train.train``: configuration, trainer, task and batches. It returns
            the validation losses and whether the training ends.

    Raises:
        ValueError: fairseq's parser has refused a flag.
    """
    # A training may change the current stream; the next one begins with the default stream.
    stream = torch.cuda.stream(torch.cuda.default_stream()) if device == "cuda" else contextlib.nullcontext()
    with tempfile.TemporaryDirectory() as folder, stream, patch.object(fairseq_train, "train", train_epoch):
        fairseq_train.main(configuration(data, f"{flags} --save-dir {shlex.quote(folder)}", device))


def reason(error):
    """Return the error in one line. Its traceback goes to stderr, unless fairseq or the package has refused a flag."""
    if not isinstance(error, (SystemExit, ValueError)):
        traceback.print_exception(error)
    return f"{type(error).__name__}: {error}".splitlines()[0]


def free(device):
    """Free the memory of deleted models, also the memory that torch's allocator keeps, and restart the measurement of its peak."""
    gc.collect()
    if device == "cuda":
        with contextlib.suppress(RuntimeError):  # after an error of the device every call fails
            torch.cuda.synchronize()
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()


def renew_generator(device):
    """Replace the state of torch's CUDA generator if a failed capture of a graph has left it unusable."""
    if device == "cuda":
        try:
            torch.rand(1, device="cuda")
        except RuntimeError:
            generator = torch.cuda.default_generators[torch.cuda.current_device()]
            with contextlib.suppress(RuntimeError):
                generator.graphsafe_set_state(torch.Generator("cuda").graphsafe_get_state())


def reserved_mib(device):
    """The most memory that torch's allocator has reserved since ``free``, in MiB, or None on a CPU."""
    return torch.cuda.max_memory_reserved() / 2**20 if device == "cuda" else None


def synchronize(device):
    if device == "cuda":
        torch.cuda.synchronize()
