"""Models made of one random layer, seen through a mask at every depth."""

from . import language_model, roberta, transformer  # noqa: F401
