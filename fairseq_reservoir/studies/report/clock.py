"""Training time and tokens at each update, computed from the parts of a log. Each process of a resumed run wrote one part."""

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field

from .log_reader import Part, Record


@dataclass
class Clock:
    """Seconds and tokens of training up to each update.

    Seconds are sums of fairseq's ``train_wall``: the time inside training steps, without validation, saving and loading. The record at the
    end of an epoch has the total time of the epoch. The records within the epoch show how this total is distributed over the updates. If an
    epoch has no end-of-epoch record, its time is computed from the records within the epoch. Tokens are ``wpb`` (target tokens per update)
    times updates. If a run stops after update 150 and resumes at update 100, 50 updates are lost. The seconds of lost updates still count
    (``lost_seconds``), but their tokens do not.

    Attributes:
        updates: updates at which seconds and tokens are known. Between these updates, seconds and tokens are interpolated linearly.
        seconds: training time up to each of ``updates``, without lost updates.
        tokens: target tokens up to each of ``updates``, without lost updates.
        losses: for each resume, the update at which training resumed, and the seconds lost up to this resume.
        lost_updates: number of updates that were lost.
        begins_at: if the log begins in the middle of training, the number of updates at the beginning of the log; otherwise 0.
        epoch_ends: updates of the end-of-epoch records that were not lost.
        has_tokens: False if the tokens of some updates were not logged.
    """

    updates: list[int] = field(default_factory=lambda: [0])
    seconds: list[float] = field(default_factory=lambda: [0.0])
    tokens: list[float] = field(default_factory=lambda: [0.0])
    losses: list[tuple[int, float]] = field(default_factory=list)
    lost_updates: int = 0
    begins_at: int = 0
    epoch_ends: list[int] = field(default_factory=list)
    has_tokens: bool = True

    @property
    def lost_seconds(self) -> float:
        return self.losses[-1][1] if self.losses else 0.0

    @property
    def rate(self) -> float:
        """Seconds per update, without lost updates; 0 if the log has no updates."""
        return self.seconds[-1] / max(1, self.updates[-1] - self.begins_at)

    @property
    def tokens_per_second(self) -> float | None:
        """Target tokens per second of training time, without lost updates; None if tokens or times were not logged."""
        return self.tokens[-1] / self.seconds[-1] if self.has_tokens and self.seconds[-1] else None

    @property
    def rounding(self) -> float:
        """Largest possible relative error of the total ``seconds``. fairseq rounds the time of each epoch to whole seconds."""
        epochs = len(self.epoch_ends)
        return min(1.0, 0.5 * epochs / self.seconds[-1]) if self.seconds[-1] else float(epochs > 0)

    def seconds_at(self, update: int) -> float:
        lost = [seconds for start, seconds in self.losses if start < update]
        return _at(self.updates, self.seconds, update) + (lost[-1] if lost else 0.0)

    def tokens_at(self, update: int) -> float:
        return _at(self.updates, self.tokens, update)


def kept_records(parts: list[Part]) -> list[Record]:
    """Return the records of the updates that led to the final model. If a resumed part repeats updates, the repetitions are used."""
    kept: list[Record] = []
    for part in parts:
        start = _start(part, kept)
        kept = [record for record in kept if record.updates <= start] + part.records
    return kept


def read_clock(parts: list[Part]) -> Clock:
    """Compute the clock of a log from its consecutive parts; see ``Clock``."""
    clock, begins_at = Clock(), (parts[0].start or 0) if parts else 0
    kept: list[Record] = []
    if begins_at > 0:
        clock.begins_at = begins_at
        clock.updates = [begins_at]
    for number, part in enumerate(parts):
        start = _start(part, kept)
        if number:
            _rewind(clock, start)
        kept = [record for record in kept if record.updates <= start]
        _append_part(clock, part.records, start, kept)
        kept = kept + part.records
    return clock


def _start(part, kept):
    """Return the update at which a part starts. If the log lacks this number, return the last update in ``kept`` before the part."""
    if part.start is not None:
        return part.start
    first = min((record.updates for record in part.records), default=0)
    return max((record.updates for record in kept if record.updates < first), default=0)


def _rewind(clock, start):
    """Set the clock back to update ``start``. Later updates and their seconds are counted as lost."""
    seconds, tokens = (_at(clock.updates, amounts, start) for amounts in (clock.seconds, clock.tokens))
    lost = max(0.0, clock.seconds[-1] - seconds) + clock.lost_seconds
    clock.lost_updates += max(0, clock.updates[-1] - start)
    keep = bisect_left(clock.updates, start)
    clock.updates[keep:], clock.seconds[keep:], clock.tokens[keep:] = [start], [seconds], [tokens]
    clock.epoch_ends = [end for end in clock.epoch_ends if end <= start]
    clock.losses = [loss for loss in clock.losses if loss[0] < start] + [(start, lost)]


def _append_part(clock, records, start, kept):
    """Append the ``records`` of one part to the clock. The part starts at update ``start``. ``kept`` has all earlier records."""
    epoch_ends = [record.updates for record in kept if record.kind == "epoch"]
    epoch_begin = max(epoch_ends, default=clock.begins_at)
    # fairseq restores its meters if it resumes in the middle of an epoch. The first record then also covers updates before the resume:
    # all since the last kept record, or since the beginning of the log if there is no such record.
    logged = (
        max((r.updates for r in kept if r.kind == "inner"), default=clock.begins_at) if start > epoch_begin else start
    )
    rates, done = [], start
    for record in records:
        if record.kind == "inner" and record.updates > logged:
            seconds = record.values.get("train_wall", 0.0) / (record.updates - logged)
            rates.append((record.updates, seconds, record.values.get("wpb")))
            logged = record.updates
        elif record.kind == "epoch" and record.updates > done:
            before = [
                _at(clock.updates, amounts, at)
                for amounts in (clock.seconds, clock.tokens)
                for at in (epoch_begin, done)
            ]
            length, wpb = record.updates - max(epoch_begin, clock.begins_at), record.values.get("wpb")
            seconds = record.values.get("train_wall", 0.0) - (before[1] - before[0])
            tokens = None if wpb is None else wpb * length - (before[3] - before[2])
            _extend(clock, done, record.updates, rates, seconds, tokens)
            epoch_begin = done = record.updates
            clock.epoch_ends.append(record.updates)
    if rates and rates[-1][0] > done:
        _extend(clock, done, rates[-1][0], rates)


def _extend(clock, begin, end, rates, seconds=None, tokens=None):
    """Append points to the clock, from update ``begin`` to update ``end``.

    Args:
        clock: the clock.
        begin: last update before the points.
        end: update of the last point.
        rates: for each record within the epoch, its update, and the seconds and tokens per update since the previous record.
        seconds: total seconds of the points. The rates are scaled to this total. None leaves the rates unchanged.
        tokens: total tokens of the points, used like ``seconds``.
    """
    ends = [until for until, *_ in rates]
    inside = rates[bisect_right(ends, begin) :]
    stops = [until for until, *_ in inside if until < end] + [end]
    shape = inside[: len(stops)] or [(end, 0.0, None)]
    shape += [shape[-1]] * (len(stops) - len(shape))
    spans = [stop - last for last, stop in zip([begin, *stops], stops)]
    by_time = _scaled([span * rate[1] for span, rate in zip(spans, shape)], spans, seconds)
    per_update = [rate[2] for rate in shape]
    if None in per_update and tokens is None:
        clock.has_tokens = False
    by_token = _scaled([span * (count or 0.0) for span, count in zip(spans, per_update)], spans, tokens)
    for stop, time, amount in zip(stops, by_time, by_token):
        clock.updates.append(stop)
        clock.seconds.append(clock.seconds[-1] + time)
        clock.tokens.append(clock.tokens[-1] + amount)


def _scaled(amounts, spans, total):
    """Scale ``amounts`` so that their sum is ``total``. If all amounts are 0, divide ``total`` in proportion to ``spans``."""
    if total is None:
        return amounts
    whole = sum(amounts)
    return [max(0.0, total) * (part / whole if whole else span / sum(spans)) for part, span in zip(amounts, spans)]


def _at(xs, ys, x):
    """Return y at ``x`` by linear interpolation between the points (xs, ys). After the last point, use the slope of the last two points."""
    if x <= xs[0]:
        return ys[0]
    if x > xs[-1] and len(xs) < 2:
        return ys[-1]
    right = min(bisect_left(xs, x), len(xs) - 1)
    left = right - 1
    return ys[left] + (ys[right] - ys[left]) * (x - xs[left]) / (xs[right] - xs[left])
