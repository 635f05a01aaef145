"""Installs everything that the plugin changes in fairseq, in an order with its reasons."""

from ..checkpoint import fairseq_loader, origin
from ..fairseq_repairs import fairseq_compat
from . import (
    backskip_hooks,
    freeze_skip,
    frozen_guard,
    fused_criterion,  # noqa: F401  registers the criterion
    preflight,
    rank_checks,
    training_hooks,
)


def install() -> None:
    """Called once, when the plugin is imported; a second call does nothing."""
    fairseq_compat.apply()  # first: what comes later wraps repaired functions
    preflight.install()  # after the repairs' cpu_launch, so that files are checked before processes are started
    training_hooks.install()
    fairseq_loader.install()  # after saving's repairs, whose files it reads
    origin.install()  # its mark is in what is saved and compared in what is loaded
    freeze_skip.install()
    backskip_hooks.install()
    frozen_guard.install()
    rank_checks.install()  # last, and so called first: processes are compared before any of them does anything
