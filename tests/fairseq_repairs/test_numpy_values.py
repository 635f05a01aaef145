"""numpy's values in checkpoints: plain numbers and arrays come back, everything else is refused before numpy sees it."""

import collections
import io
import pickle
import sys

import numpy as np
import pytest
import torch

from fairseq_reservoir.fairseq_repairs import numpy_values


def saved(value) -> io.BytesIO:
    stream = io.BytesIO()
    torch.save(value, stream)
    stream.seek(0)
    return stream


class Calls:
    """Pickled as a call of a function, with the state that the result is given then."""

    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("code", numpy_values.CODES)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (2, 0, 5)], ids=str)
def test_arrays_and_numbers_come_back(code, shape):
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(code)
    number = np.dtype(code).type(1)
    found = torch.load(saved({"array": array, "turned": np.array(array.T, order="F"), "number": number}))
    assert found["array"].dtype == array.dtype and np.array_equal(found["array"], array)
    assert np.array_equal(found["turned"], array.T)
    assert type(found["number"]) is type(number) and found["number"] == number


def test_what_was_loaded_is_saved_as_numpys_own():
    again = torch.load(saved(np.arange(3.0))) + 1
    for protocol in range(2, 6):
        found = pickle.loads(pickle.dumps(again, protocol))
        assert type(found) is np.ndarray and found.tolist() == [1, 2, 3]


@pytest.mark.parametrize("module", ["numpy.core.multiarray", "numpy._core.multiarray"])
def test_the_names_of_both_numpys(module):
    """A checkpoint of numpy 1 with numpy 2, and the other way round."""
    own = f"{np.zeros(0).__reduce__()[0].__module__}\n".encode()
    data = pickle.dumps(np.arange(3), 2).replace(own, f"{module}\n".encode())
    assert torch._weights_only_unpickler.load(io.BytesIO(data)).tolist() == [0, 1, 2]


class Pointer:
    """numpy's type of a float with a field of an object in it, whose eight bytes are chosen by the file."""

    def __reduce__(self):
        fields = (Calls(np.dtype, ("O",)), (2,))
        return np.dtype, ("f8", False, True), (3, "<", fields, None, None, 16, 8, 0)


RECONSTRUCT, SCALAR = np.zeros(0).__reduce__()[0], np.float64(0).__reduce__()[0]
FLOAT = np.dtype("f8")
HOSTILE = {
    "a pointer": Calls(np.ndarray, ((1,), Pointer(), (0x414141414141).to_bytes(8, "little") * 2)),
    "a type of pointers": Pointer(),
    "objects": np.array([None]),
    "texts": np.array(["a"]),
    "dates": np.array(["2020-01-01"], "M8[D]"),
    "fields": np.zeros(2, [("a", "f8")]),
    "another byte order": np.zeros(2, ">f8"),
    "a number of a pointer": Calls(SCALAR, (Pointer(), bytes(16))),
    "too short a number": Calls(SCALAR, (FLOAT, bytes(4))),
    "memory as it is": Calls(np.ndarray, ((1000,), FLOAT)),
    "an array of no bytes": Calls(RECONSTRUCT, (np.ndarray, (1000,), b"b")),
    "more entries than bytes": Calls(
        RECONSTRUCT, (np.ndarray, (0,), b"b"), (1, (60_000, 60_000), FLOAT, False, bytes(8))
    ),
    "sizes that multiply to nothing": Calls(RECONSTRUCT, (np.ndarray, (0,), b"b"), (1, (2**63, 2), FLOAT, False, b"")),
    "a negative size": Calls(RECONSTRUCT, (np.ndarray, (0,), b"b"), (1, (-1, -8), FLOAT, False, bytes(64))),
    "a list of objects": Calls(RECONSTRUCT, (np.ndarray, (0,), b"b"), (1, (1,), FLOAT, False, [None])),
    "a text for its shape": Calls(RECONSTRUCT, (np.ndarray, (0,), b"b"), (1, "1", FLOAT, False, bytes(8))),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_everything_else_is_refused(what):
    stream = saved({"extra": collections.OrderedDict([(1, HOSTILE[what])])})
    with pytest.raises(pickle.UnpicklingError, match="numpy"):
        torch.load(stream)


def test_entries_come_once():
    """A tensor made of the array would go on reading where the first entries were."""
    array = torch.load(saved(np.arange(3.0)))
    with pytest.raises(pickle.UnpicklingError, match="another form"):
        array.__setstate__((1, (1,), numpy_values.PlainType("f8"), False, bytes(8)))
    assert array.tolist() == [0, 1, 2]


def test_numpys_own_constructors_are_out_of_reach():
    allowed = [known[0] if type(known) is tuple else known for known in torch.serialization.get_safe_globals()]
    named = {f"{ours.__module__}.{ours.__qualname__}" for ours in allowed if callable(ours)}
    assert not [name for name in named if name.startswith("numpy")], sys.version
