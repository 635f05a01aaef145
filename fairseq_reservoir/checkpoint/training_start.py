"""What a training run cannot start from."""

import zipfile
from pathlib import Path

from ..errors import InputError
from . import packed_file


def check_start(config, model=None) -> None:
    """Refuses exports that training would have to go on from, and initial values that a checkpoint's would replace.

    In place of scores an export holds mask entries. Training on those would never bring a dropped weight back: its score
    is 0, and with it the sign that its gradient is multiplied by.

    Args:
        config: fairseq's options of the group ``checkpoint``.
        model: those of the model.

    Raises:
        InputError: the file to start from is an export without optimizer state, or one of masks; or with a model to start
            from, frozen components are to be drawn.
    """
    frozen_init = getattr(model, "frozen_init", None) or "model"
    if getattr(config, "finetune_from_model", None) and frozen_init != "model":
        raise InputError(
            f"--frozen-init {frozen_init}: has no effect with --finetune-from-model, whose values are taken; leave one of them out"
        )
    for flag in ("restore_file", "continue_once", "finetune_from_model"):
        path = getattr(config, flag, None)
        if not str(path).endswith(packed_file.SUFFIX):
            continue
        name = f"--{flag.replace('_', '-')} {path}"
        if packed_file.read_body(path)["masks"]:
            raise InputError(
                f"{name}: an export of masks, without the scores that training needs; give the checkpoint it was made from"
            )
        if flag != "finetune_from_model":
            raise InputError(
                f"{name}: an export, without the optimizer's state; give the checkpoint it was made from, or start a new"
                f" training with --finetune-from-model {path}"
            )


def check_whole(config) -> None:
    """Refuses to go on from a checkpoint that has been cut short, and names the newest one that has not.

    Raises:
        InputError: the file that training would go on from is not whole.
    """
    path = Path(config.restore_file)
    if config.restore_file == "checkpoint_last.pt":
        path = Path(config.save_dir) / path
    if not path.is_file() or _is_whole(path):
        return
    others = sorted((p for p in path.parent.glob("checkpoint*.pt") if _is_whole(p)), key=lambda p: p.stat().st_mtime)
    how = f"--restore-file {others[-1]} goes on from the newest that is whole" if others else "there is no other beside it"
    raise InputError(f"--restore-file {path}: a checkpoint that has been cut short; {how}")


def _is_whole(path):
    """Whether a file of torch.save has its end, where a zip archive has its list of contents; older formats have none."""
    with open(path, "rb") as stream:
        start = stream.read(2)
    return zipfile.is_zipfile(path) if start in (b"PK", b"") else True
