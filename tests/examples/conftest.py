"""Fixtures for tests of recipes."""

import pytest


@pytest.fixture
def data(tmp_path):
    """A folder with the names of Multi30k's files. A dry run reads nothing else."""
    for part in ("train", "val", "test_2016_flickr"):
        for language in ("en", "de"):
            (tmp_path / f"{part}.{language}").touch()
    return tmp_path
