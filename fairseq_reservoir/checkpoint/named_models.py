"""Answers what the commands that read a model are told wrong in one line, before any file is read."""

from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fairseq.utils import split_paths

from ..errors import InputError
from ..fairseq_repairs.error_report import fairseq_command

# Those that take several models in one --path, and those that take one.
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
    suffix, shards = getattr(flags, "checkpoint_suffix", ""), getattr(flags, "checkpoint_shard_count", 1)
    if not suffix and shards == 1:  # else it is made of several files
        for one in split_paths(path) if command in _ENSEMBLES else [path]:
            _check_file("--path", one)
        if getattr(flags, "lm_path", None) is not None:
            _check_file("--lm-path", flags.lm_path)
    if command == "fairseq-validate" and flags.max_tokens is None and flags.batch_size is None:
        raise InputError("--max-tokens: neither it nor --batch-size is given; give one, such as --max-tokens 4096")


def _check_file(flag: str, path: str) -> None:
    if "://" in path:
        return
    if Path(path).is_dir():
        raise InputError(f"{flag} {path}: a folder; name a file in it, such as {Path(path) / 'checkpoint_best.pt'}")
    if not Path(path).exists():
        raise InputError(f"{flag} {path or repr(path)}: no such file")
