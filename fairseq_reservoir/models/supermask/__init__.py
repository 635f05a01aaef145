"""Models that apply one random layer at every depth, with a mask for each depth."""

from . import language_model, roberta, transformer  # noqa: F401
