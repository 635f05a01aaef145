"""Compile ``guard.cpp`` once for each version of torch, and load it before torch starts."""

import ctypes
import fcntl
import hashlib
import os
import shutil
import subprocess
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

SOURCE = Path(__file__).with_name("guard.cpp")


def why_not() -> str | None:
    """Reason that this machine cannot have a fake CUDA device, or None."""
    import torch

    if torch.version.cuda or torch.version.hip:
        return "this torch knows GPUs: the fake one would stand in their way"
    return None if shutil.which("g++") else "g++ is not installed, which compiles the fake device"


def compiled(folder: Path) -> Path:
    """Return the library in ``folder``, compiling it if it is missing. Concurrent processes compile it once.

    Raises:
        RuntimeError: the compiler failed; the message is its output.
    """
    folder.mkdir(parents=True, exist_ok=True)
    what = hashlib.sha256(SOURCE.read_bytes() + version("torch").encode()).hexdigest()[:16]
    library = folder / f"fake_cuda_{what}.so"
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not library.exists():
            unfinished = library.with_suffix(f".{os.getpid()}")
            torch = _torch()
            flags = f"-shared -fPIC -O0 -std=c++20 -I{torch}/include -L{torch}/lib".split()
            done = subprocess.run(
                ["g++", *flags, SOURCE, "-o", unfinished, "-lc10", "-ltorch_cpu"], capture_output=True, text=True
            )
            if done.returncode:
                raise RuntimeError(done.stderr)
            unfinished.rename(library)
    return library


def load(library: Path) -> None:
    """Load the library. Call this once, before torch is imported, because autograd queries devices only when it starts."""
    for part in (_torch() / "lib" / "libc10.so", _torch() / "lib" / "libtorch_cpu.so", library):
        ctypes.CDLL(str(part), mode=ctypes.RTLD_GLOBAL)


def _torch() -> Path:
    spec = find_spec("torch")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent
