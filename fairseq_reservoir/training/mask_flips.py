"""``mask_flips`` in fairseq's log: the share of learned mask entries that an update changes, measured once per --log-interval."""

import torch
from fairseq.logging import metrics

from ..masks.masked_weight import masked_modules


def measure(train_step, trainer, *args, **kwargs):
    """The masks that an update worked with differ from those of the update before by what that one changed.

    Counted are entries that have scores, unless these are frozen in one of the two updates; what a --mask-keep-schedule changes counts,
    too. A share that does not fall as the rate does means masks that have not settled. The value waits for the device once.
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
    # Those that a schedule has thawed in this update have none of the update before.
    both = masks.keys() & held[1].keys() if held is not None and held[0] == update - 1 else set()
    if both and update % interval == 0:
        changed = torch.stack([torch.count_nonzero(masks[name] != held[1][name]) for name in sorted(both)]).sum().item()
        share = changed / sum(learned[name].scores.numel() for name in both)
        metrics.log_scalar("mask_flips", share, priority=1500, round=7)
    if (update + 1) % interval == 0:
        trainer._masks_before = update, masks
    return result


def _is_learned(masked):
    return masked.scores is not None and masked.scores.requires_grad
