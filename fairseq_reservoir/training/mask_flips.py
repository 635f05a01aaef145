"""``mask_flips`` in fairseq's log: the share of learned mask entries that an update changes, measured once per --log-interval."""

import torch
from fairseq.logging import metrics

from ..masks.masked_weight import masked_modules


def measure(train_step, trainer, *args, **kwargs):
    """The masks that an update worked with differ from those of the update before by what that one changed.

    Counted are entries that have scores, unless these are frozen; what a --mask-keep-schedule changes counts, too. A share that
    does not fall as the rate does means masks that have not settled. The value waits for the device once.
    """
    result = train_step(trainer, *args, **kwargs)
    interval, update = trainer.cfg.common.log_interval, trainer.get_num_updates()
    if not interval or update % interval not in (0, interval - 1):
        return result
    held = getattr(trainer, "_masks_before", None)
    if held is not None and held[0] == update:
        return result  # fairseq left the update out, and will go on with the same masks
    learned = {name: m for name, m in masked_modules(trainer.get_model()).items() if _is_learned(m)}
    masks = {name: m.mask_cache.last_used(m) for name, m in learned.items()}
    trainer._masks_before = None
    if not masks or any(mask is None for mask in masks.values()):
        return result
    if held is not None and held[0] == update - 1 and update % interval == 0:
        changed = torch.stack([torch.count_nonzero(mask != held[1][name]) for name, mask in masks.items()]).sum().item()
        share = changed / sum(m.scores.numel() for m in learned.values())
        metrics.log_scalar("mask_flips", share, priority=1500, round=7)
    if (update + 1) % interval == 0:
        trainer._masks_before = update, masks
    return result


def _is_learned(masked):
    return masked.scores is not None and masked.scores.requires_grad
