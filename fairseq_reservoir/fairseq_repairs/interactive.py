"""Store the line numbers of the input of ``fairseq-interactive``, and the source words of the current batch."""

import sys
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field

from fairseq.tokenizer import tokenize_line

from ..errors import InputError
from .repair import wrap

_SHOWN = 20


@dataclass
class Session:
    """Line numbers and source words of one run of ``fairseq-interactive``.

    Attributes:
        first: line number of the first line in the current buffer, counted from 1.
        left_out: numbers of the lines that were not translated.
        words: for each sentence of the current batch, its source tokens as text, including tokens that the dictionary lacks.
    """

    first: int = 1
    left_out: list[int] = field(default_factory=list)
    words: list[list[str]] = field(default_factory=list)


_session: ContextVar[Session | None] = ContextVar("_session", default=None)


def current_session() -> Session | None:
    """The running session; None in commands other than ``fairseq-interactive``."""
    return _session.get()


def call_in_a_session(original, cfg, main, **kwargs):
    """Run a fairseq command. If the command is ``fairseq-interactive``, run it inside a ``Session``.

    The functions of ``fairseq-interactive`` are hooked only when the command runs, because importing its module configures logging.
    """
    command = sys.modules.get(getattr(main, "__module__", ""))
    if not (hasattr(command, "buffered_read") and hasattr(command, "make_batches")):
        return original(cfg, main, **kwargs)
    wrap(command, "buffered_read", _buffered_read)
    wrap(command, "make_batches", _make_batches)
    token = _session.set(Session())
    try:
        return original(cfg, main, **kwargs)
    finally:
        _session.reset(token)


def _buffered_read(original, *args):
    session = current_session() or Session()
    try:
        for lines in original(*args):
            yield lines
            session.first += len(lines)
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise InputError(f"--input {args[0]}: is not UTF-8 (byte 0x{byte:02x}); convert the text to UTF-8") from error
    if session.left_out:
        count = len(session.left_out)
        lines = "1 line is" if count == 1 else f"{count:,} lines are"
        numbers = ", ".join(map(str, session.left_out[:_SHOWN])) + (", ..." if count > _SHOWN else "")
        raise InputError(f"--input {args[0]}: {lines} too long and not translated: {numbers}")


def _make_batches(original, lines, cfg, task, max_positions, encode) -> Iterator:
    session = current_session() or Session()
    for batch in original(lines, cfg, task, max_positions, encode):
        if cfg.generation.replace_unk is not None:
            session.words = [tokenize_line(encode(lines[number])) for number in batch.ids.tolist()]
        yield batch
