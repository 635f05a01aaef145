"""Repair of ``--log-file``. The repair writes the time of day into each line, and writes each record only once."""

import logging
import os
from logging.handlers import WatchedFileHandler

from fairseq.logging import progress_bar

from .repair import repair, wrap

# The format of fairseq's output.
FORMAT = logging.Formatter("%(asctime)s | %(levelname)s | %(name)s | %(message)s", "%Y-%m-%d %H:%M:%S")


@repair("log-file")
def write_times_into_log_files():
    """Write each record to ``--log-file`` only once, and begin its line with the time of day.

    fairseq gives its file handlers no format. It adds a handler at the start of each epoch, so the records of epoch N appear N times. The
    first line of the file, the configuration, is written before any hook is called, so this line has no time. ``trainer.building``
    calls ``format_log_file`` before the task is set up.
    """
    wrap(progress_bar, "progress_bar", add_one_handler)


def format_log_file():
    """Give the file handlers of fairseq-train a format."""
    if not write_times_into_log_files.is_applied:
        return
    for handler in logging.getLogger("fairseq_cli.train").handlers:
        if isinstance(handler, logging.FileHandler) and handler.formatter is None:
            handler.setFormatter(FORMAT)


def add_one_handler(original, *args, log_file=None, **kwargs):
    """Add a file handler for the records of a progress bar, unless the file has one from an earlier epoch."""
    if log_file is not None:
        handlers = [each for each in progress_bar.logger.handlers if isinstance(each, logging.FileHandler)]
        if os.path.abspath(log_file) not in [handler.baseFilename for handler in handlers]:
            # Reopens the file if a second training of this process has replaced it.
            handler = WatchedFileHandler(log_file)
            handler.setFormatter(FORMAT)
            progress_bar.logger.addHandler(handler)
    return original(*args, **kwargs)
