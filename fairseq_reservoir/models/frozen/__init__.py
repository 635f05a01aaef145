"""Variants of all fairseq architectures in which components can be frozen."""

from . import components  # noqa: F401
