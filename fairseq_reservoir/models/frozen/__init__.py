"""All architectures of fairseq with frozen components."""

from . import architectures  # noqa: F401
