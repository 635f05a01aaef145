"""Preparation of data-bin/ from public archives. scripts/prepare_*.sh runs `python -m prepare.NAME` with scripts/ on the path."""
