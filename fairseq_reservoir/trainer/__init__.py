"""The trainer of this package and the checks before a training. ``install`` adds both to fairseq."""
