"""Repairs of how fairseq writes checkpoints: no incomplete files, a hash in each file, and one-line messages for disk errors."""

import shutil

from fairseq import checkpoint_utils, file_io

from ..files import replacing
from . import archive
from .repair import repair, wrap

REFUSAL = "--save-dir: {path} cannot be written ({why}); earlier checkpoints are unaffected"


@repair("save-once")
def write_once() -> None:
    """Write a checkpoint once, with a seal, and leave no incomplete file behind.

    The seal is a hash at the end of the file; see ``archive``. When writing fails, plain fairseq tries twice more, and appends to the bytes
    that are already written. If a later attempt succeeds, ``torch.load`` refuses the file. If all attempts fail, an incomplete file
    and three tracebacks remain.
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

    fairseq writes the first checkpoint file of a save under a temporary name and renames it. Then fairseq copies this file over the other
    checkpoints, such as ``checkpoint_last.pt``, byte by byte. If the run is stopped during the copy, or the disk is full, the incomplete
    ``checkpoint_last.pt`` cannot be resumed.
    """

    def copy(original, src_path, dst_path, overwrite=False):
        # Remote files are left to iopath.
        if not all(map(file_io.PathManager.supports_rename, (src_path, dst_path))):
            return original(src_path, dst_path, overwrite)
        with replacing(dst_path, REFUSAL) as part:
            shutil.copyfile(src_path, str(part))  # as iopath does, which ignores errors
        return dst_path

    wrap(file_io.PathManager, "copy", copy)
