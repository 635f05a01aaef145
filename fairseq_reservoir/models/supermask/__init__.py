"""Models that apply one random layer at every depth, each time with another mask."""

from . import language_model, roberta, transformer  # noqa: F401
