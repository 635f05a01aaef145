"""Checks ``--path``, ``--task`` and the batch size of the commands that read a model, before any file is read."""

import os.path
from argparse import Namespace
from collections.abc import Callable
from typing import Any

from fairseq.utils import split_paths

from ..errors import InputError
from ..fairseq_repairs.error_report import fairseq_command

# The commands that read a model; the first two take several of them in one --path.
_ENSEMBLES = ("fairseq-generate", "fairseq-interactive")
_READERS = (*_ENSEMBLES, "fairseq-eval-lm", "fairseq-validate")


def check_flags(parse_args_and_arch: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """A hook of ``options.parse_args_and_arch``: in those commands no file is read before this.

    Raises:
        InputError: a model is not named or not there, or ``fairseq-validate`` is not told task or size of a batch.
    """
    command = fairseq_command()
    try:
        parsed = parse_args_and_arch(*args, **kwargs)
    except KeyError as error:
        if command != "fairseq-validate" or error.args != (None,):
            raise
        raise InputError("--task: is not given; give that of the training, such as --task translation") from error
    flags = parsed[0] if isinstance(parsed, tuple) else parsed
    # Without defaults it is parsed in full besides; other programs parse flags of training in a command's process.
    if command in _READERS and not kwargs.get("suppress_defaults") and hasattr(flags, "path"):
        _check(command, flags)
    return parsed


def _check(command: str, flags: Namespace) -> None:
    path = flags.path
    if path is None:
        raise InputError("--path: is not given; name a model's file, such as --path checkpoints/checkpoint_best.pt")
    if not _in_several_files(flags):
        if command not in _ENSEMBLES and len(split_paths(path)) > 1 and not os.path.exists(path):
            raise InputError(f"--path {path}: several models, but {command} takes one")
        for one in split_paths(path) if command in _ENSEMBLES else [path]:
            _check_file("--path", one)
        if getattr(flags, "lm_path", None) is not None:
            _check_file("--lm-path", flags.lm_path)
    if command == "fairseq-validate" and flags.max_tokens is None and flags.batch_size is None:
        raise InputError("--max-tokens: neither it nor --batch-size is given; give one, such as --max-tokens 4096")


def _in_several_files(flags: Namespace) -> bool:
    """Whether fairseq adds to the name that is given, as it does where each process reads a part of the model."""
    return (
        getattr(flags, "checkpoint_suffix", "") != ""
        or getattr(flags, "checkpoint_shard_count", 1) != 1
        or getattr(flags, "model_parallel_size", 1) > 1
    )


def _check_file(flag: str, path: str) -> None:
    if "://" in path:
        return
    if os.path.isdir(path):
        raise InputError(
            f"{flag} {path}: a folder; name a file in it, such as {os.path.join(path, 'checkpoint_best.pt')}"
        )
    # fairseq reads the first shard of a model by FSDP where that is what there is.
    if not os.path.exists(path) and not os.path.exists(f"{path[:-3]}-shard0.pt"):
        raise InputError(f"{flag} {path or repr(path)}: no such file")
