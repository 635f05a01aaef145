"""When masks are selected: once per update, for all masked tensors of a model together.

A masked weight is reused until something may have changed the scores. Optimizers that write ``p.data``, as fairseq's do,
leave no trace on a tensor, so the cache goes by what it is told: an update number (``set_num_updates``), a change between
training and evaluation, a loaded state, a conversion. In training without any update number, masks are selected anew at
every use, except inside ``cached_masks``.
"""

from contextlib import contextmanager

import torch
from torch import Tensor, nn

from .topk_mask import keep_count, select_largest, with_signs


class MaskCache:
    """Masks and masked weights of ``members``, which share it; see ``share_mask_cache``.

    A member is a module with ``scores``, ``choices`` and ``pinned`` and the methods of ``MaskedWeight``.
    """

    def __init__(self, members: list[nn.Module]):
        self.members = members
        self.num_updates = None
        self.held = 0
        self._kept = {}

    def __getstate__(self):
        return self.__dict__ | {"_kept": {}}

    def set_num_updates(self, num_updates: int) -> None:
        """Starts an update; the same number again (gradient accumulation) changes nothing."""
        if num_updates != self.num_updates:
            self.num_updates = num_updates
            self.forget()

    def forget(self, member: nn.Module | None = None) -> None:
        """Drops what is kept of one member or of all; call it after changing scores in a way nobody could see."""
        if member is None:
            self._kept.clear()
        else:
            self._kept.pop(member, None)

    def get(self, member: nn.Module) -> tuple[Tensor, Tensor]:
        """The mask and the masked weight of a member."""
        if member.training and self.num_updates is None and not self.held:
            return self._select([member])[member]
        if not self._is_fresh(member):
            self._kept.update(self._select([m for m in self.members if not self._is_fresh(m)]))
        return self._kept[member][:2]

    def _is_fresh(self, member):
        return member in self._kept and self._kept[member][2] == _stamp(member)

    @torch.inference_mode(False)
    @torch.no_grad()
    def _select(self, members):
        """For each member its mask, its masked weight and the stamp of what they were made from."""
        wanted = set(members)
        if any(m.choices.scope == "global" for m in members):
            members = [m for m in self.members if m in wanted or m.choices.scope == "global"]
        batches = {}
        for m in members:
            shape = None if m.choices.scope == "global" else m.weight_shape
            batches.setdefault((shape, m.choices, m.keep_ratios, m.device), []).append(m)
        kept = {}
        for (_, choices, ratios, _), batch in batches.items():
            for m, mask in zip(batch, _learned_masks(batch, choices, ratios)):
                mask = m.with_pinned(mask)
                kept[m] = (mask, m.apply_mask(mask), _stamp(m))
        return kept


def _learned_masks(members, choices, ratios):
    """The mask of each member's scores; None for a member without scores."""
    scores = [m.scores for m in members]
    if scores[0] is None:
        return scores
    if choices.scope == "global":
        # Pinned entries count in the ratio: what they keep is taken off.
        size = sum(m.weight_shape.numel() for m in members)
        rows = [torch.cat([s.reshape(-1) for s in scores])[None]]
    else:
        size = members[0].weight_shape[-1] if choices.scope == "row" else members[0].weight_shape.numel()
        rows = [s.reshape(-1, s.shape[-1] if choices.scope == "row" else s.numel()) for s in scores]
    pinned = [m.pinned_counts for m in (members if choices.scope == "global" else members[:1])]
    learned = rows[0].shape[1]
    counts = [keep_count(r, size) - sum(p[coat] for p in pinned) for coat, r in enumerate(ratios)]
    masks = select_largest(rows, [min(max(0, c), learned) for c in counts], choices.ranking == "magnitude")
    if choices.scope == "global":
        masks = masks[0][0].split([s.numel() for s in scores])
    masks = [mask.reshape(s.shape) for mask, s in zip(masks, scores)]
    return [with_signs(m, s) for m, s in zip(masks, scores)] if choices.kind == "signed" else masks


def _stamp(member):
    """What a tensor shows of its changes: another storage, or a write that torch counted, as it does not in inference mode."""
    tensors = [member.frozen_weight] + ([] if member.scores is None else [member.scores])
    return (member.keep_ratios, *((t.data_ptr(), None if t.is_inference() else t._version, t.dtype) for t in tensors))


def masked_modules(model: nn.Module) -> dict[str, nn.Module]:
    """The masked modules in a model, by name."""
    return {name: m for name, m in model.named_modules() if isinstance(getattr(m, "mask_cache", None), MaskCache)}


def share_mask_cache(model: nn.Module) -> MaskCache:
    """Puts all masked modules of a model in one cache, so that equal shapes are selected in one call; call it once."""
    members = list(masked_modules(model).values())
    cache = MaskCache(members)
    for m in members:
        m.mask_cache = cache
    return cache


@contextmanager
def cached_masks(model: nn.Module):
    """Masks are selected at most once inside, also in training without update numbers: for gradient accumulation.

    The optimizer must not step inside.
    """
    caches = {id(m.mask_cache): m.mask_cache for m in masked_modules(model).values()}.values()
    for cache in caches:
        cache.forget()
        cache.held += 1
    try:
        yield
    finally:
        for cache in caches:
            cache.forget()
            cache.held -= 1


def nan_scores(model: nn.Module) -> list[str]:
    """Names of the score tensors that hold a NaN; waits for the device once."""
    scores = {f"{name}.scores".lstrip("."): m.scores for name, m in masked_modules(model).items() if m.scores is not None}
    if not scores:
        return []
    found = torch.stack([s.detach().isnan().any() for s in scores.values()]).tolist()
    return [name for name, has_nan in zip(scores, found) if has_nan]
