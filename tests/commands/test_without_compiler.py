"""Commands that only build a model start without torch's compiler, and leave torch as it was."""

import subprocess
import sys

import pytest

# Each program starts in a new process, because any other test may have imported the compiler.
BUILD = """
import sys
import torch
from fairseq_reservoir.commands.without_compiler import without_compiler
"""


def run(program):
    finished = subprocess.run([sys.executable, "-c", BUILD + program], capture_output=True, text=True)
    assert (finished.stderr, finished.returncode) == ("", 0)
    return finished.stdout


def test_meta_tensors_are_computed_without_the_compiler():
    """The placeholder is removed, and torch keeps none of its functions. Later calls import the real compiler."""
    run(
        """
with without_compiler():
    assert torch.empty(3, 2, device="meta").normal_().exp().shape == (3, 2)
    assert sys.modules["torch._dynamo"].functions
    functions = sys.modules["torch._dynamo"].functions
assert "torch._dynamo" not in sys.modules
assert not any(hasattr(function, "__dynamo_disable") for function in functions)
torch.empty(3, 2, device="meta").normal_()
assert sys.modules["torch._dynamo"].__file__
assert all(torch._dynamo.disable is not function for function in functions)
"""
    )


@pytest.mark.parametrize(
    "use",
    [
        "assert torch._dynamo.config.cache_size_limit > 0",
        "import torch._dynamo.config as config; assert config.cache_size_limit > 0",
        "assert torch.compile(lambda x: x + 1, backend='eager')(torch.zeros(2)).tolist() == [1, 1]",
    ],
)
def test_other_uses_import_the_real_compiler(use):
    run(f"with without_compiler():\n    {use}\nassert sys.modules['torch._dynamo'].__file__\n")


def test_an_imported_compiler_stays():
    run(
        "import torch._dynamo as real\nwith without_compiler():\n    assert sys.modules['torch._dynamo'] is real\n"
        "assert sys.modules['torch._dynamo'] is real\n"
    )


def test_plan_imports_no_compiler():
    program = """
from fairseq_reservoir import cli
cli.main("plan -a reservoir_transformer_tiny --reservoir-encoder LFL".split())
assert "torch._dynamo" not in sys.modules
"""
    assert "F feed-forward" in run(program)
