"""The version of the package, which pip reads without importing anything else."""

__version__ = "0.2.0"
