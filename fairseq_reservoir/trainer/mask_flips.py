"""Log ``mask_flips``, the fraction of learned mask entries that one update changes, once per ``--log-interval``."""

import torch
from fairseq.logging import metrics

from ..masks.masked_weight import masked_modules


def measure(trainer) -> None:
    """Log the fraction of mask entries that differ between the last two updates. Call this after every update.

    A mask is included only if its scores were trained in both updates. Changes that --mask-keep-schedule makes are included. If the
    fraction does not fall with the learning rate, the masks have not converged. Each measurement synchronises with the device once.
    """
    interval, update = trainer.cfg.common.log_interval, trainer.get_num_updates()
    if not interval or update % interval not in (0, interval - 1):
        return
    held = trainer.masks_before
    if held is not None and held[0] == update:
        return  # fairseq skipped the update
    learned = {name: m for name, m in masked_modules(trainer.get_model()).items() if _is_learned(m)}
    masks = {name: m.mask_cache.last_used(m) for name, m in learned.items()}
    trainer.masks_before = None
    if not masks or any(mask is None for mask in masks.values()):
        return
    # Masks that a schedule unfreezes in this update are not compared.
    earlier = held[1] if held is not None and held[0] == update - 1 else {}
    both = sorted(masks.keys() & earlier.keys())
    if both and update % interval == 0:
        changed = torch.stack([torch.count_nonzero(masks[name] != earlier[name]) for name in both]).sum().item()
        sizes = {name: m.scores.numel() for name, m in learned.items() if m.scores is not None}
        share = changed / sum(sizes[name] for name in both)
        metrics.log_scalar("mask_flips", share, priority=1500, round=7)
    if (update + 1) % interval == 0:
        trainer.masks_before = update, masks


def _is_learned(masked):
    return masked.scores is not None and masked.scores.requires_grad
