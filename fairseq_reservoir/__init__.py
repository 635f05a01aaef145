"""Frozen random Transformers for fairseq: a package and a ``--user-dir`` in one folder."""

from . import fairseq_compat, training_hooks

fairseq_compat.apply()
training_hooks.install()

from .models import reservoir_transformer  # noqa: E402, F401
