"""NumPy values in checkpoints: plain numbers and arrays are restored. Other values are refused before NumPy gets them."""

import collections
import io
import pickle
import sys

import numpy as np
import pytest
import torch

from fairseq_reservoir.fairseq_repairs import numpy_values


def saved_stream(value) -> io.BytesIO:
    stream = io.BytesIO()
    torch.save(value, stream)
    stream.seek(0)
    return stream


class Calls:
    """Object that is pickled as a function call, optionally followed by a state for the result."""

    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize("code", numpy_values.CODES)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (2, 0, 5)], ids=str)
def test_arrays_and_numbers_are_restored(code, shape):
    array = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(code)
    number = np.dtype(code).type(1)
    found = torch.load(saved_stream({"array": array, "turned": np.array(array.T, order="F"), "number": number}))
    assert found["array"].dtype == array.dtype and np.array_equal(found["array"], array)
    assert np.array_equal(found["turned"], array.T)
    assert type(found["number"]) is type(number) and found["number"] == number


def test_loaded_values_are_pickled_as_numpys_own():
    again = torch.load(saved_stream(np.arange(3.0))) + 1
    for protocol in range(2, 6):
        found = pickle.loads(pickle.dumps(again, protocol))
        assert type(found) is np.ndarray and found.tolist() == [1, 2, 3]


@pytest.mark.parametrize("module", ["numpy.core.multiarray", "numpy._core.multiarray"])
def test_module_names_of_numpy_1_and_2(module):
    """A checkpoint that was saved with NumPy 1 loads with NumPy 2, and vice versa."""
    own = f"{np.zeros(0).__reduce__()[0].__module__}\n".encode()
    data = pickle.dumps(np.arange(3), 2).replace(own, f"{module}\n".encode())
    assert torch._weights_only_unpickler.load(io.BytesIO(data)).tolist() == [0, 1, 2]


class Pointer:
    """Float dtype with an object field. The file chooses its eight bytes, which NumPy would use as a pointer."""

    def __reduce__(self):
        fields = (Calls(np.dtype, ("O",)), (2,))
        return np.dtype, ("f8", False, True), (3, "<", fields, None, None, 16, 8, 0)


RECONSTRUCT, SCALAR = np.zeros(0).__reduce__()[0], np.float64(0).__reduce__()[0]
FLOAT = np.dtype("f8")
HOSTILE = {
    "a pointer": Calls(np.ndarray, ((1,), Pointer(), (0x414141414141).to_bytes(8, "little") * 2)),
    "a dtype of pointers": Pointer(),
    "objects": np.array([None]),
    "strings": np.array(["a"]),
    "dates": np.array(["2020-01-01"], "M8[D]"),
    "fields": np.zeros(2, [("a", "f8")]),
    "another byte order": np.zeros(2, ">f8"),
    "a scalar with a pointer": Calls(SCALAR, (Pointer(), bytes(16))),
    "a shortened scalar": Calls(SCALAR, (FLOAT, bytes(4))),
    "uninitialised memory": Calls(np.ndarray, ((1000,), FLOAT)),
    "an array of no bytes": Calls(RECONSTRUCT, (np.ndarray, (1000,), b"b")),
    "more entries than bytes": Calls(
        RECONSTRUCT, (np.ndarray, (0,), b"b"), (1, (60_000, 60_000), FLOAT, False, bytes(8))
    ),
    "sizes with a product that overflows to 0": Calls(
        RECONSTRUCT, (np.ndarray, (0,), b"b"), (1, (2**63, 2), FLOAT, False, b"")
    ),
    "a negative size": Calls(RECONSTRUCT, (np.ndarray, (0,), b"b"), (1, (-1, -8), FLOAT, False, bytes(64))),
    "a list of objects": Calls(RECONSTRUCT, (np.ndarray, (0,), b"b"), (1, (1,), FLOAT, False, [None])),
    "a string as its shape": Calls(RECONSTRUCT, (np.ndarray, (0,), b"b"), (1, "1", FLOAT, False, bytes(8))),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_all_other_values_are_refused(case):
    stream = saved_stream({"extra": collections.OrderedDict([(1, HOSTILE[case])])})
    with pytest.raises(pickle.UnpicklingError, match="numpy"):
        torch.load(stream)


def test_the_state_of_an_array_is_set_only_once():
    """With another state, a tensor that shares the array's memory would read freed memory."""
    array = torch.load(saved_stream(np.arange(3.0)))
    with pytest.raises(pickle.UnpicklingError, match="unsupported state"):
        array.__setstate__((1, (1,), numpy_values.PlainType("f8"), False, bytes(8)))
    assert array.tolist() == [0, 1, 2]


def test_numpys_own_constructors_are_not_allowed():
    allowed = [entry[0] if type(entry) is tuple else entry for entry in torch.serialization.get_safe_globals()]
    named = {f"{function.__module__}.{function.__qualname__}" for function in allowed if callable(function)}
    assert not [name for name in named if name.startswith("numpy")], sys.version
