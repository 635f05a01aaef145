"""The trainer of this package and the checks before a training. ``install`` installs both in fairseq."""
