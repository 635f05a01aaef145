"""Prepares data-bin/ from the public archives: run by scripts/prepare_*.sh, `python -m prepare.NAME` with scripts/ on the path."""
