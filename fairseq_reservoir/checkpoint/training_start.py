"""What a training run cannot start from."""

from ..errors import InputError
from . import packed_file


def check_start(config) -> None:
    """Refuses exports that training would have to go on from.

    In place of scores an export holds mask entries. Training on those would never bring a dropped weight back: its score
    is 0, and with it the sign that its gradient is multiplied by.

    Args:
        config: fairseq's options of the group ``checkpoint``.

    Raises:
        InputError: the file to start from is an export without optimizer state, or one of masks.
    """
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
