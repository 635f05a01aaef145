"""``mask_flips`` in fairseq's log: the share of mask entries that an update changes, measured once per --log-interval."""

import torch
from fairseq.logging import metrics

from ..masks.masked_weight import masked_modules


def measure(train_step, trainer, *args, **kwargs):
    """Masks hold still while the same update's batches pass, so what two updates worked with differs by what the first changed.

    A share that does not fall as the rate does means masks that have not settled. The value waits for the device once.
    """
    result = train_step(trainer, *args, **kwargs)
    interval, update = trainer.cfg.common.log_interval, trainer.get_num_updates()
    if not interval or update % interval not in (0, interval - 1):
        return result
    masks = {name: m.mask for name, m in masked_modules(trainer.get_model()).items() if m.scores is not None}
    held = trainer.__dict__.pop("_masks_before", None)
    if held is not None and masks and held[0] == update - 1 and update % interval == 0:
        changed = torch.stack([torch.count_nonzero(mask != held[1][name]) for name, mask in masks.items()]).sum().item()
        share = changed / sum(mask.numel() for mask in masks.values())
        metrics.log_scalar("mask_flips", share, priority=1500, round=7)
    if (update + 1) % interval == 0 and masks:
        trainer._masks_before = update, masks
    return result
