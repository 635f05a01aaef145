"""Repairs of how fairseq writes checkpoints: whole or not at all, and in one line when the disk refuses."""

import os
import shutil
from contextlib import contextmanager
from pathlib import Path

import torch
from fairseq import checkpoint_utils, file_io

from ..errors import InputError
from ..files import sync
from .repair import repair, wrap


@repair("save-once")
def write_once() -> None:
    """Write a checkpoint once, and leave nothing of one that could not be written.

    When writing fails, fairseq tries twice more, into the same stream and so after what is there already. If that succeeds, it has
    a file that ``torch.load`` refuses, and gives it the name of the checkpoint; if not, half a file and three tracebacks.
    """

    def torch_persistent_save(original, obj, filename, *args, **kwargs):
        with _undone_on_errors(filename):
            return original(obj, filename, *args, **kwargs)

    checkpoint_utils._torch_persistent_save = torch.save
    wrap(checkpoint_utils, "torch_persistent_save", torch_persistent_save)


@repair("copy-whole")
def copy_checkpoints_whole() -> None:
    """Replace ``checkpoint_last.pt`` in one step.

    fairseq writes one checkpoint beside its place and then renames it, but copies it over the others byte by byte. A run
    that is stopped meanwhile, or a disk that is full, leaves half a ``checkpoint_last.pt`` and nothing to resume from.
    """

    def copy(original, src_path, dst_path, overwrite=False):
        if not all(map(file_io.PathManager.supports_rename, (src_path, dst_path))):  # not both on this machine: iopath's affair
            return original(src_path, dst_path, overwrite)
        with _undone_on_errors(dst_path):
            part = shutil.copyfile(src_path, f"{dst_path}.tmp")  # iopath does so too, but keeps errors to itself
            sync(part)
            os.replace(part, dst_path)
        return dst_path

    wrap(file_io.PathManager, "copy", copy)


@contextmanager
def _undone_on_errors(path):
    """Leaves no ``path``.tmp behind when its body fails; an error of the system becomes one line."""
    try:
        yield
    except Exception as error:
        refusal = _error_of_the_system(error)
        if refusal is None:
            raise
        why = refusal.strerror or refusal
        raise InputError(f"--save-dir: {path} cannot be written ({why}); what was saved before is as it was") from error
    finally:
        Path(f"{path}.tmp").unlink(missing_ok=True)


def _error_of_the_system(error):
    """The first OSError in a chain: torch's writer may put another error on top."""
    while error is not None and not isinstance(error, OSError):
        error = error.__cause__ or error.__context__
    return error
