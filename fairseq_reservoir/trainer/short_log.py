"""Shorten the log of a command: remove lines of fairseq that no user needs, and warnings that no user can avoid.

``LOGLEVEL=DEBUG``, fairseq's environment variable, keeps all lines.
"""

import logging
import warnings

# Beginnings of log messages, by fairseq's logger.
DETAILS = {
    "fairseq_cli.train": ("num. expert model params", "Start iterating over samples", "begin dry-run validation"),
    "fairseq.trainer": (
        "detected shared parameter",
        "Preparing to load checkpoint",
    ),  # the slot table shows tied parameters
    "fairseq.data.data_utils": ("loaded ",),  # the task logs the number of examples too
    "fairseq.data.iterators": ("grouped total_num_itrs",),
    "fairseq.tasks.fairseq_task": (
        "can_reuse_epoch_itr",
        "reuse_dataloader",
        "rebuild_batches",
        "creating new batches",
    ),
}
WARNINGS = (
    (r"'pin_memory' argument is set as true but no accelerator is found", UserWarning),
    (r"`torch\.cuda\.amp\.\w+\(args\.\.\.\)` is deprecated", FutureWarning),
    # fairseq passes this argument. Its replacement would synchronise buffers at the start.
    (r"`broadcast_buffers` is deprecated", FutureWarning),
    (r"Support for mismatched key_padding_mask and attn_mask is deprecated", UserWarning),
)


def install() -> None:
    """Add ``keep`` to fairseq's loggers. A second call changes nothing, because a logger does not add a filter twice."""
    for name in DETAILS:
        logging.getLogger(name).addFilter(keep)


def keep(record: logging.LogRecord) -> bool:
    """Whether a log record of fairseq is printed.

    fairseq logs the whole module tree of a model, about 100 lines. If the model has a slot table, the module tree is not logged, because
    the trainer logs the table.
    """
    if record.levelno > logging.INFO or logging.getLogger().isEnabledFor(logging.DEBUG):
        return True
    if hasattr(record.msg, "slot_table"):
        return False
    return not str(record.msg).startswith(DETAILS.get(record.name, ()))


def ignore_warnings() -> None:
    """From now on, ignore torch's warnings about fairseq's code (``WARNINGS``). The user's own filters (``-W``) take precedence."""
    for message, category in WARNINGS:
        warnings.filterwarnings("ignore", message, category, append=True)
