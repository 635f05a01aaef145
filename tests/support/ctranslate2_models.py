"""Export small models with their dictionaries, and read the variables of a CTranslate2 model."""

import struct
from pathlib import Path

import numpy as np

from fairseq_reservoir.checkpoint.export import export
from fairseq_reservoir.text.collect import TextFlags
from tests.support.commands import train

_DTYPES = ("float32", "int8", "int16", "int32", "float16")


def exported(toy_data, folder, flags, *options, **how):
    """Train one update, and export the model with its dictionaries."""
    once = ["--max-update", 1, "--no-epoch-checkpoints", "--disable-validation", "--save-dir", folder]
    train(toy_data, *flags.split(), *once)
    out = folder / "model.safetensors"
    export(folder / "checkpoint_last.pt", out, data=str(toy_data), text=TextFlags(with_text=True), **how)
    return out


def variables(folder) -> dict[str, np.ndarray]:
    """Variables of a CTranslate2 model (binary version 6) by name. Aliases have the array of the aliased variable."""
    data, place = Path(folder, "model.bin").read_bytes(), 0

    def number(kind):
        nonlocal place
        (value,) = struct.unpack_from(f"<{kind}", data, place)
        place += struct.calcsize(f"<{kind}")
        return value

    def text():
        nonlocal place
        size = number("H")
        place += size
        return data[place - size : place - 1].decode()

    assert number("I") == 6
    text(), number("I")
    found = {}
    for _ in range(number("I")):
        name = text()
        shape = [number("I") for _ in range(number("B"))]
        dtype, size = np.dtype(_DTYPES[number("B")]), number("I")
        found[name] = np.frombuffer(data[place : place + size], dtype).reshape(shape)
        place += size
    for _ in range(number("I")):
        name = text()
        found[name] = found[text()]
    assert place == len(data)
    return found
