"""Models with a layer plan."""

from . import language_model, roberta, transformer  # noqa: F401
