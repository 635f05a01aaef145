"""Freeze schedules of a few flags, without a model."""

from fairseq_reservoir.freezing.freeze_schedule import FreezeSchedule
from fairseq_reservoir.options.freeze_skip_options import FreezeSkipOptions


def schedule_of_flags(names, seed=1, untrained=(), aliases=None, **flags):
    """The schedule of flags without their prefix, such as ``rotate="2:3"``."""
    options = FreezeSkipOptions(**{f"freeze_{name}": value for name, value in flags.items()})
    return FreezeSchedule(names, options, seed, untrained, aliases)
