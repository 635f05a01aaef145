"""Every architecture of fairseq with components frozen."""

from . import architectures  # noqa: F401
