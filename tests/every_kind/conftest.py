"""The tests in this folder run over every letter of the layer plans: a new kind of layer gets them for nothing."""

from tests.models.conftest import exact_softmax, seed  # noqa: F401
