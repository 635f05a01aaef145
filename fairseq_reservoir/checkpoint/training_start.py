"""What a training run cannot start from."""

from pathlib import Path

from ..errors import InputError
from . import packed_file
from .damage import refuse_damaged


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
    """Refuses to start from a checkpoint that is damaged; see ``refuse_damaged``.

    Raises:
        InputError: one line with the file and what to take instead.
    """
    if config.restore_file == "checkpoint_last.pt":
        refuse_damaged(Path(config.save_dir) / config.restore_file, "--restore-file ")
    else:
        refuse_damaged(config.restore_file, "--restore-file ")
    for flag in ("continue_once", "finetune_from_model"):
        if path := getattr(config, flag, None):
            refuse_damaged(path, f"--{flag.replace('_', '-')} ")
