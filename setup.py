"""All of it stands in pyproject.toml; this file is for tools that still ask for one."""

from setuptools import setup

setup()
