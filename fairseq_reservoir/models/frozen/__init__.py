"""Variants of all architectures of fairseq in which components can be frozen."""

from . import architectures  # noqa: F401
