"""Frozen random Transformers for fairseq: a package and a ``--user-dir`` in one folder."""

from . import fairseq_compat

fairseq_compat.apply()

from .models import reservoir_transformer  # noqa: E402, F401
