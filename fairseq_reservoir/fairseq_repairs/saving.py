"""Repairs of how fairseq writes checkpoints: whole or not at all, sealed, and in one line when the disk refuses."""

import shutil

from fairseq import checkpoint_utils, file_io

from ..files import replacing
from . import archive
from .repair import repair, wrap

REFUSAL = "--save-dir: {path} cannot be written ({why}); what was saved before is as it was"


@repair("save-once")
def write_once() -> None:
    """Write a checkpoint once, sealed, and leave nothing of one that could not be written.

    The seal is a hash of the file behind it; see ``archive``.
    When writing fails, fairseq tries twice more, into the same stream and so after what is there already. If that succeeds, it has
    a file that ``torch.load`` refuses, and gives it the name of the checkpoint; if not, half a file and three tracebacks.
    """

    def torch_persistent_save(original, obj, filename, async_write=False):
        if async_write or not file_io.PathManager.supports_rename(filename):
            return original(obj, filename, async_write)
        with replacing(filename, REFUSAL) as part, file_io.PathManager.open(str(part), "wb") as stream:
            checkpoint_utils._torch_persistent_save(obj, stream)

    checkpoint_utils._torch_persistent_save = archive.save
    wrap(checkpoint_utils, "torch_persistent_save", torch_persistent_save)


@repair("copy-whole")
def copy_checkpoints_whole() -> None:
    """Replace ``checkpoint_last.pt`` in one step.

    fairseq writes one checkpoint beside its place and then renames it, but copies it over the others byte by byte. A run
    that is stopped meanwhile, or a disk that is full, leaves half a ``checkpoint_last.pt`` and nothing to resume from.
    """

    def copy(original, src_path, dst_path, overwrite=False):
        # Where not both are on this machine, it is iopath's affair.
        if not all(map(file_io.PathManager.supports_rename, (src_path, dst_path))):
            return original(src_path, dst_path, overwrite)
        with replacing(dst_path, REFUSAL) as part:
            shutil.copyfile(src_path, str(part))  # iopath does so too, but keeps errors to itself
        return dst_path

    wrap(file_io.PathManager, "copy", copy)
