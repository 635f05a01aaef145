"""``--cuda-graphs`` of fairseq-generate and fairseq-interactive: add the flag, store its value, and replace the generator."""

import os
from collections.abc import Callable
from typing import Any

from fairseq.sequence_generator import SequenceGenerator

from ...layers.replace import adopt
from ...options.command_options import GENERATION_GRAPHS, GenerationGraphOptions
from ...options.for_fairseq.parser import add_flags
from ...options.reading import read
from .generator import GraphedGenerator, note

# Whether the flag has set the variable in this process.
_set_by_flag = False


def add_flag(parser: Any) -> None:
    """Add ``--cuda-graphs`` to the parser of a command that translates."""
    if _translates(parser) and "--cuda-graphs" not in parser._option_string_actions:
        add_flags(parser, GenerationGraphOptions)


def read_flag(parser: Any, flags: Any) -> None:
    """Store the value of ``--cuda-graphs`` in an environment variable, because fairseq's configuration has no option of this name.

    If a later command in this process lacks the flag, the variable is removed. A variable that the user has set is kept.
    """
    global _set_by_flag
    if not _translates(parser):
        return
    if read(GenerationGraphOptions, flags).cuda_graphs:
        if not os.environ.get(GENERATION_GRAPHS):  # missing or empty
            os.environ[GENERATION_GRAPHS] = "1"
            _set_by_flag = True
    elif _set_by_flag:
        os.environ.pop(GENERATION_GRAPHS, None)
        _set_by_flag = False


def inference_step(
    original: Callable[..., Any], task: Any, generator: Any, models: Any, sample: Any, *args: Any, **kwargs: Any
) -> Any:
    """Hook of ``FairseqTask.inference_step``: search with a ``GraphedGenerator`` if the flag is given.

    Only a plain ``SequenceGenerator`` is replaced. With ``--replace-unk``, fairseq's generator is kept, because another function has
    replaced its ``generate`` and reads the attention weights.
    """
    if os.environ.get(GENERATION_GRAPHS):
        if type(generator) is not SequenceGenerator:
            note(models[0], f"the generator is {type(generator).__name__}")
        elif "generate" in vars(generator):
            note(models[0], "--replace-unk")
        else:
            generator = adopt(GraphedGenerator, generator)
    return original(task, generator, models, sample, *args, **kwargs)


def _translates(parser: Any) -> bool:
    return "--lenpen" in parser._option_string_actions and "--max-update" not in parser._option_string_actions
