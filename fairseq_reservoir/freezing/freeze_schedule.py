"""Freeze schedules of ``freeze_skip``: the frozen tensors of every update.

``--freeze-schedule``, ``--freeze-progressive`` and ``--freeze-rotate`` freeze tensors. ``--freeze-update-every`` skips updates of tensors.
"""

import itertools
import math

from ..errors import InputError
from ..options.freeze_skip_options import Change, FreezeSkipOptions, resolve
from ..plan import freeze_spec
from ..random_tensors import philox

# Largest number of updates per phase of a schedule that are searched for an update that trains nothing. The pattern of skipped updates
# repeats after the least common multiple of the periods of --freeze-update-every, which is rarely larger.
_LONGEST_CYCLE = 10_000


class FreezeSchedule:
    """The frozen parameters and the skipped parameters of every update.

    Updates are numbered from 0. A frozen parameter has no gradient, no update, no decay and no optimizer state. When it is trained
    again, its optimizer state starts at the initial value. A skipped parameter keeps its optimizer state. Neither the parameter nor this
    state changes in the skipped update.

    ``--freeze-rotate`` works as LISA (Pan et al., 2024): each period trains randomly drawn layers, and all parameters outside the layers.
    The draw depends on the seed and the number of the period, so it is the same on all ranks and in resumed runs.

    Args:
        names: the parameters that may be trained, in the model's order.
        options: the flags. ``freeze_progressive`` START:EVERY freezes layer i of every stack at update START + i * EVERY, but never the
            last layer of a stack.
        seed: seed of the rotation.
        untrained: the names of the model's other parameters.
        aliases: further name of a tied parameter -> its name in ``names``. Freeze specs match either name.

    Raises:
        InputError: a flag is invalid, matches nothing, freezes a parameter twice or leaves nothing to train. The message names the flag.
    """

    def __init__(self, names, options: FreezeSkipOptions, seed: int = 1, untrained=(), aliases=None):
        self.names, self.seed, self.untrained = tuple(names), seed, tuple(untrained)
        self.owners = {name: name for name in self.names} | (aliases or {})
        settings, rotate = resolve(options), options.freeze_rotate
        self.rotate = settings.rotate
        if self.rotate and (options.freeze_schedule or options.freeze_progressive):
            raise InputError(
                f"--freeze-rotate {rotate}: chooses the frozen layers itself; remove --freeze-schedule and --freeze-progressive"
            )
        changes = [*settings.schedule, *self._progressive(settings.progressive, options.freeze_progressive)]
        self.changes = sorted(changes, key=lambda change: change.update)
        self.phases = self._phases(self.changes)
        self.every = self._periods(settings.update_every, options.freeze_update_every)
        self.layers = layers_of(self.names)
        if self.rotate and self.rotate[0] >= len(self.layers):
            raise InputError(
                f"--freeze-rotate {rotate}: the model has only {len(self.layers)} layers with trained parameters; give a smaller K"
            )
        self._check_something_is_trained()

    def frozen(self, update: int) -> frozenset[str]:
        """Return the parameters that are frozen at an update."""
        if self.rotate:
            return self._rotated_out(update // self.rotate[1])
        return next(names for first, names in reversed(self.phases) if first <= update)

    def frozen_in_phases(self) -> tuple[frozenset[str], ...]:
        """Return the frozen parameters of each phase. A phase is the time between two changes of the schedule."""
        return tuple(names for _, names in self.phases)

    def skipped(self, update: int) -> frozenset[str]:
        """Return the parameters that ``--freeze-update-every`` skips at an update."""
        return frozenset(name for name, period in self.every.items() if update % period)

    def line(self, change: Change) -> str:
        """Format a change for the log. The line counts frozen tensors after all changes of this update."""
        outside = dict.fromkeys(n.rpartition(".")[0] for n in change.names if not freeze_spec.layer_of(n))
        spec = f"{change.spec} with {', '.join(outside)}" if outside else change.spec
        return (
            f"update {change.update}: {spec} {'frozen' if change.freeze else 'trained again'}; "
            f"{len(dict(self.phases)[change.update])} of {len(self.names)} tensors are frozen"
        )

    def __str__(self) -> str:
        count = len(self.names)
        lines = [self.line(change) for change in self.changes]
        if self.rotate:
            lines.append(
                f"{self.rotate[0]} of {len(self.layers)} layers trained at a time, drawn again every {self.rotate[1]} updates"
            )
        for period in sorted(set(self.every.values())):
            lines.append(f"{list(self.every.values()).count(period)} of {count} tensors updated every {period} updates")
        return "\n".join(lines)

    def _phases(self, changes):
        """Return pairs (first update, frozen names) in ascending order, from update 0."""
        # A tied parameter may be frozen under several names, for example first with the encoder, then with the decoder.
        frozen, named, phases = frozenset(), set(), {0: frozenset()}
        for change in changes:
            matched = set(change.names) or self._selected(change.spec, change.flag)
            chosen = {self.owners[name] for name in matched}
            at = f"{change.flag}: at update {change.update}, {change.spec}"
            if change.freeze and matched & named:
                raise InputError(
                    f"{at} cannot be frozen, because an earlier entry freezes its parameter {min(matched & named)}; "
                    "freeze a parameter only once"
                )
            if not change.freeze and chosen - frozen:
                raise InputError(
                    f"{at} is trained again, but the schedule has not frozen its parameter {min(chosen - frozen)}; "
                    "a schedule cannot train parameters that --freeze freezes"
                )
            frozen = frozen | chosen if change.freeze else frozen - chosen
            named = {name for name in named | matched if self.owners[name] in frozen}
            phases[change.update] = frozen
        return tuple(phases.items())

    def _selected(self, spec, flag):
        """Return the names that a freeze spec matches. A tied parameter is returned under all its matching names."""
        return freeze_spec.selected(spec, self.owners, flag, others=self.untrained)

    def _progressive(self, times, text):
        """Return the changes of ``--freeze-progressive``, layer by layer.

        A tensor that several layers share is frozen together with the last of these layers. If one of these layers stays trained, the
        tensor is never frozen.
        """
        if not times:
            return []
        start, every = times
        last = freeze_spec.last_layers(self.names)
        turns = [
            (stack, layer) for layer in range(max(last.values(), default=0)) for stack in last if layer < last[stack]
        ]
        if not turns:
            raise InputError(
                f"--freeze-progressive {text}: freezes no layer, because no stack has a layer below its last trained layer; remove the flag"
            )
        places = {name: set() for name in self.names}
        for name, owner in self.owners.items():
            places[owner].add(freeze_spec.layer_of(name))
        freezes = {turn: [] for turn in turns}
        for name, sharing in places.items():
            if sharing <= freezes.keys():
                freezes[max(sharing, key=turns.index)].append(name)
        if not any(freezes.values()):
            raise InputError(
                f"--freeze-progressive {text}: freezes nothing, because the lower layers share all parameters with the last layer, which "
                "stays trained; remove the flag"
            )
        return [
            Change(start + layer * every, f"{stack}.layers.{layer}", True, "--freeze-progressive", tuple(names))
            for (stack, layer), names in freezes.items()
            if names
        ]

    def _periods(self, update_every, text):
        periods = {}
        for spec, period in update_every:
            for name in {self.owners[name] for name in self._selected(spec, "--freeze-update-every")}:
                if periods.get(name, period) != period:
                    raise InputError(
                        f"--freeze-update-every {text!r}: {name} has two periods; name it in only one item"
                    )
                periods[name] = period
        return periods

    def _rotated_out(self, period):
        keys = philox.words(self.seed, f"freeze-rotate/{period}", len(self.layers))
        order = sorted(range(len(self.layers)), key=lambda i: (int(keys[i]), i))
        layers = list(self.layers.values())
        return frozenset(itertools.chain.from_iterable(layers[i] for i in order[self.rotate[0] :]))

    def _check_something_is_trained(self):
        if self.rotate:
            outside = set(self.names).difference(*self.layers.values()) - self.every.keys()
            skipped = [layer for layer in self.layers.values() if self.every.keys() >= set(layer)]
            if not outside and len(skipped) >= self.rotate[0]:
                raise InputError(
                    "--freeze-update-every: in some updates, skips all parameters that --freeze-rotate trains; name fewer components"
                )
            return
        cycle = min(_LONGEST_CYCLE, math.lcm(*self.every.values()))
        starts = [first for first, _ in self.phases]
        for first, after in zip(starts, [*starts[1:], math.inf]):
            for update in range(first, int(min(after, first + cycle))):
                if not set(self.names) - self.frozen(update) - self.skipped(update):
                    raise InputError(
                        f"--optimizer freeze_skip: nothing is trained at update {update}; freeze fewer components"
                    )


def layers_of(names) -> dict[tuple[str, int], list[str]]:
    """Return the parameters of each layer: (stack, depth) -> names."""
    layers: dict[tuple[str, int], list[str]] = {}
    for name in names:
        layer = freeze_spec.layer_of(name)
        if layer:
            layers.setdefault(layer, []).append(name)
    return layers
