"""Hide warnings that Python and torch print when fairseq is imported. A user cannot avoid these warnings."""

import contextlib
import warnings
from collections.abc import Iterator


@contextlib.contextmanager
def ignored() -> Iterator[None]:
    r"""Ignore two kinds of warning inside the block. All other warning filters stay active, including filters that the block adds.

    Python 3.12 and later warn of the string ``"\d"`` when they compile fairseq's wav2vec2_asr.py. torch 2.14 warns of each
    ``@torch.jit.script`` in fairseq/models/model_utils.py. ``fairseq-train`` imports fairseq before the plugin, so this package cannot
    hide the warnings in ``fairseq-train``.
    """
    added = []
    for message, category, module in (
        ("", SyntaxWarning, r".*[/\\]fairseq[/\\]"),
        (r"`torch\.jit\.\w+` is deprecated", FutureWarning, r"torch\.jit\."),
    ):
        warnings.filterwarnings("ignore", message, category, module)
        added.append(warnings.filters[0])
    try:
        yield
    finally:
        for entry in added:
            with contextlib.suppress(ValueError):  # the body has reset the filters
                warnings.filters.remove(entry)  # type: ignore[attr-defined]  # a list; mypy assumes a sequence
