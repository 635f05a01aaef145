"""Radix select in Triton: against the CPU's selection, ties by hand, long and short rows, and the fallback.

Without a GPU, triton's interpreter runs the kernels in NumPy. It is slow, so that blocks and rows are small here. The tests on
a GPU use the kernels with their real sizes, see tests/gpu/test_masks.py.
"""

import importlib.util
import logging
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings, strategies as st

from fairseq_reservoir.masks import radix_selection, selection

ROOT = Path(__file__).parents[2]
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SMALL = {"_BLOCK": 16, "_PROGRAMS": 6, "_PER_WARP": 32}

needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed; torch's CPU build does not bring it"
)


def select(x, counts, magnitude, long):
    """``radix_selection.select`` with small blocks; ``long`` rows are divided among programs."""
    sizes = SMALL | {"_SHORT": 0 if long else 16384}
    before = {name: getattr(radix_selection, name) for name in sizes}
    try:
        for name, value in sizes.items():
            setattr(radix_selection, name, value)
        return radix_selection.select(x.to(DEVICE), counts, magnitude).cpu()
    finally:
        for name, value in before.items():
            setattr(radix_selection, name, value)


# Ties are kept from the lowest index, in each row. |-2| ties with 2; a NaN and infinity of both signs tie as magnitudes.
@needs_triton
@pytest.mark.parametrize("long", [True, False])
@pytest.mark.parametrize(
    "magnitude, row, count, expected",
    [
        (True, [1, -2, 2, 0, 2, -1], 2, [0, 1, 1, 0, 0, 0]),
        (True, [1, -2, 2, 0, 2, -1], 4, [1, 1, 1, 0, 1, 0]),
        (False, [1, -2, 2, 0, 2, -1], 3, [1, 0, 1, 0, 1, 0]),
        (False, [1, -2, 2, 0, 2, -1], 5, [1, 0, 1, 1, 1, 1]),
        (False, [0.0, -0.0, 0.0, -0.0], 2, [1, 1, 0, 0]),
        (True, [-0.0, 0.0, -0.0, 0.0], 3, [1, 1, 1, 0]),
        (True, [3, -math.inf, math.inf, math.nan], 2, [0, 1, 1, 0]),
        (False, [3, -math.inf, math.inf, -math.nan], 3, [1, 0, 1, 1]),
        (False, [-math.inf, -1, -math.inf, -3e38], 3, [1, 1, 0, 1]),
        (False, [-1e-45, 1e-45, 0.0, -0.0], 2, [0, 1, 1, 0]),
        (True, [5.0] * 40, 17, [1] * 17 + [0] * 23),
    ],
)
def test_by_hand(long, magnitude, row, count, expected):
    x = torch.tensor([row, row[::-1]], dtype=torch.float32)
    found = select(x, [count], magnitude, long)
    assert found.dtype == torch.bool and found[0].int().tolist() == expected
    assert found[1].sum() == count


VALUES = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, -1.0, 2.0, math.nan, -math.nan, math.inf, -math.inf]), st.floats(width=32)
)


@needs_triton
@pytest.mark.parametrize("long", [True, False])
@settings(max_examples=25, deadline=None)
@given(data=st.data(), n=st.integers(1, 100), rows=st.integers(1, 3), magnitude=st.booleans())
def test_equals_the_selection_on_the_cpu(long, data, n, rows, magnitude):
    few = data.draw(st.lists(VALUES, min_size=1, max_size=12))
    picks = torch.randint(len(few), (rows, n), generator=torch.Generator().manual_seed(n))
    dtype = data.draw(st.sampled_from([torch.float32, torch.half, torch.bfloat16]))
    x = torch.tensor(few)[picks].to(dtype)
    if dtype == torch.bfloat16 and DEVICE == "cpu":
        # The interpreter does not convert subnormal bfloat16 numbers exactly. The compiled kernels do: `cvt.f32.bf16` without `ftz`.
        x[x.abs() < torch.finfo(dtype).tiny] = 0
    counts = data.draw(st.lists(st.integers(0, n), min_size=1, max_size=2))
    found = select(x, counts, magnitude, long)
    assert found.equal(selection.select_largest([x], counts, magnitude)[0])


@needs_triton
@pytest.mark.parametrize("magnitude", [True, False])
def test_common_first_digits(magnitude):
    """More scores share 16 bits than are counted by atomic operations, and fewer, in blocks of a thousand."""
    near = torch.arange(1, 1025, dtype=torch.float32) * 2**-20 + 1
    x = torch.cat([torch.linspace(-4, 4, 1000), near[torch.randperm(1024)], torch.full((500,), 1.5)])[None]
    before, radix_selection._SHORT = radix_selection._SHORT, 0
    try:
        found = radix_selection.select(x.to(DEVICE), [1000, 700, 3], magnitude).cpu()
    finally:
        radix_selection._SHORT = before
    assert found.equal(selection.select_largest([x], [1000, 700, 3], magnitude)[0])


@needs_triton
def test_rows_that_are_not_contiguous_and_have_gradients():
    x = torch.nn.Parameter(torch.randn(30, 4, device=DEVICE))
    for long in (True, False):
        found = select(x.t(), [10], True, long)
        assert found.equal(selection.select_largest([x.detach().cpu().t().contiguous()], [10])[0])
        assert not found.requires_grad


@needs_triton
def test_counts_without_a_kernel():
    assert radix_selection.select(torch.randn(2, 5), [0, 5, 5], True).tolist() == [[2] * 5] * 2
    assert radix_selection.select(torch.randn(2, 5), [5], True).all()
    assert radix_selection.select(torch.empty(0, 5), [3], True).shape == (0, 5)
    assert radix_selection.select(torch.empty(3, 0), [0], True).shape == (3, 0)


@needs_triton
def test_the_kernels_compile_without_a_gpu():
    """In a process of its own, because this one may have the interpreter in place of the compiler."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = [sys.executable, "-m", "tests.support.compile_radix_kernels"]
    compiled = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert compiled.returncode == 0, compiled.stderr[-2000:]
    assert len(compiled.stdout.splitlines()) == 18


def test_a_cpu_does_not_use_it():
    assert not radix_selection.is_usable(torch.randn(2, 5))


def test_a_failure_is_logged_once_and_torch_is_used(monkeypatch, caplog):
    def fail(*_):
        raise RuntimeError("no compiler\nand more lines")

    tried = []
    monkeypatch.setattr(radix_selection, "_failed", False)
    monkeypatch.setattr(radix_selection, "select", fail)
    monkeypatch.setattr(
        radix_selection, "is_usable", lambda x: not radix_selection._failed and (tried.append(1) or True)
    )
    rows = [torch.randn(2, 5, device="meta") for _ in range(2)]
    monkeypatch.setattr(torch.cuda, "device", lambda _: torch.no_grad())
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            masks = selection.select_largest(rows, [2])
    assert [mask.shape for mask in masks] == [(2, 5)] * 2 and len(tried) == 1
    assert [r.getMessage() for r in caplog.records] == [
        "selecting masks with torch, which is slower, because triton failed: no compiler"
    ]


def test_too_little_memory_is_no_failure_of_triton(monkeypatch):
    def fail(*_):
        raise torch.OutOfMemoryError("no memory")

    monkeypatch.setattr(radix_selection, "_failed", False)
    monkeypatch.setattr(radix_selection, "select", fail)
    monkeypatch.setattr(torch.cuda, "device", lambda _: torch.no_grad())
    with pytest.raises(torch.OutOfMemoryError):
        radix_selection.try_select(torch.randn(2, 5), [2], True)
    assert not radix_selection._failed
