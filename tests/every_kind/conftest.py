"""Tests in this folder run for every letter of layer plans, including new kinds."""

from tests.models.conftest import exact_softmax, seed  # noqa: F401
