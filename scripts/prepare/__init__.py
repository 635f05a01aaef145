"""From the public archives to data-bin/: what scripts/prepare_*.sh run, `python -m prepare.NAME` with scripts/ on the path."""
