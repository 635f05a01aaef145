"""One step of fairseq's beam search as operations on tensors of fixed shapes. The host reads no value from the device."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from .state import State


@dataclass(frozen=True)
class Settings:
    """Settings on which a captured step depends. They have the same names as in fairseq's ``SequenceGenerator``."""

    beam_size: int
    vocab_size: int
    pad: int
    unk: int
    eos: int
    unk_penalty: float
    min_len: int
    temperature: float
    suppressed: tuple[int, ...] = ()


class SearchStep:
    """One step of fairseq's beam search.

    Each beam i of a sentence has a score s_i. The candidates are the 2 beam_size largest s_i + log p(w | i) over all beams i and tokens w,
    in descending order. If one of the first beam_size candidates is the end of sentence, it becomes a finished hypothesis. The first
    beam_size candidates that are not the end of sentence become the new beams. There are always beam_size such candidates, because each
    beam contributes at most one end of sentence. A sentence is finished when it has beam_size finished hypotheses, or at the last step,
    which allows only the end of sentence.

    At every step, fairseq removes finished sentences from the batch and copies the tokens of all hypotheses. This class keeps the rows of
    finished sentences and ignores them. It stores only each new token and the beam that the token extends. ``hypotheses`` restores the
    token sequences from them.
    """

    def __init__(self, settings: Settings, device: Any) -> None:
        self.settings = settings
        # Three masks to add to log probabilities: before --min-len, from then on, and at the last step.
        masks = torch.zeros(3, settings.vocab_size)
        masks[:, settings.unk] = -settings.unk_penalty
        masks[:, settings.pad] = -torch.inf
        masks[0, settings.eos] = -torch.inf
        masks[2, : settings.eos] = -torch.inf
        masks[2, settings.eos + 1 :] = -torch.inf
        masks[:, list(settings.suppressed)] = -torch.inf
        self.masks = masks.to(device)
        self.order = torch.arange(2 * settings.beam_size, device=device)

    def __call__(self, state: State, logits: Tensor) -> None:
        """Extend all hypotheses by one token and store the new beams in ``state``.

        Args:
            state: the state before the step, which is changed in place.
            logits: (batch * beam, vocab_size), of any float dtype.
        """
        beam = self.settings.beam_size
        scores, origins, tokens = self._candidates(state, logits)
        ends = tokens.eq(self.settings.eos) & scores.ne(-torch.inf)
        self._finish(state, scores[:, :beam], origins[:, :beam], ends[:, :beam])

        # The smallest keys belong to the first candidates that are not the end of sentence.
        keys = ends * (2 * beam) + self.order
        best = keys.topk(beam, dim=1, largest=False).indices
        parent, chosen, total = (tensor.gather(1, best) for tensor in (origins, tokens, scores))
        for history, now in ((state.parent, parent), (state.chosen, chosen), (state.total, total)):
            history.index_copy_(0, state.step, now.unsqueeze(0))
        state.ancestors.copy_(state.ancestors.gather(1, parent.unsqueeze(2).expand_as(state.ancestors)))
        state.token.copy_(chosen)
        state.score.copy_(total)
        state.step.add_(1)

    def _candidates(self, state: State, logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the scores, previous beams and tokens of the candidates, (batch, 2 beam_size), sorted by descending scores."""
        batch, beam = state.score.shape
        if self.settings.temperature != 1:
            logits = logits / self.settings.temperature
        log_probs = functional.log_softmax(logits, dim=-1, dtype=torch.float32)
        log_probs = log_probs.nan_to_num(nan=-torch.inf, posinf=torch.inf, neginf=-torch.inf)
        phase = state.step.ge(self.settings.min_len).long() + state.step.ge(state.last_step)
        log_probs = log_probs + self.masks.index_select(0, phase)
        totals = log_probs.view(batch, beam, -1) + state.score.unsqueeze(2)
        scores, places = totals.view(batch, -1).topk(2 * beam, dim=1)
        origins = torch.div(places, self.settings.vocab_size, rounding_mode="trunc")
        return scores, origins, places - origins * self.settings.vocab_size

    def _finish(self, state: State, scores: Tensor, origins: Tensor, ends: Tensor) -> None:
        """Store the candidates that are the end of sentence. A sentence keeps its first beam_size finished hypotheses.

        Args:
            scores, origins, ends: (batch, beam).
        """
        beam = self.settings.beam_size
        ends = ends & ~state.finished.unsqueeze(1)
        place = ends.cumsum(1) - 1 + state.count.unsqueeze(1)
        place = place.masked_fill(~(ends & place.lt(beam)), beam)
        state.end_score.scatter_(1, place, scores)
        state.end_beam.scatter_(1, place, origins)
        state.end_step.scatter_(1, place, state.step.unsqueeze(1).expand_as(place))
        state.count.copy_((state.count + ends.sum(1)).clamp(max=beam))
        state.finished.copy_(state.finished | state.count.ge(beam) | state.step.ge(state.last_step))
        state.unfinished.copy_((~state.finished).sum().view(1))
