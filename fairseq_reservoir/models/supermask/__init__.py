"""Models of one random layer, applied at every depth with another mask."""

from . import language_model, roberta, transformer  # noqa: F401
