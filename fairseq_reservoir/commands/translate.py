"""``fairseq-reservoir translate``: translate text from standard input to standard output with an export."""

import sys
import time
from collections.abc import Iterator
from typing import BinaryIO

from ..errors import InputError
from ..files import check_file
from ..options import fairseq_rules
from ..options.number_rules import check as check_rules
from ..options.translation_defaults import BATCH_SIZE, BEAM, LENPEN, MAX_LEN_B, SPLIT_ABOVE
from . import translation_engine
from .standard_output import writing

HELP = """\
Translates standard input line by line. The export must contain its dictionaries and its subword model. No other file is needed. The command
prints one line for each input line, in the same order:

  fairseq-reservoir export checkpoints/checkpoint_best.pt model.safetensors --sentencepiece-model pieces/joint.model
  fairseq-reservoir translate model.safetensors < text.en > text.de

CTranslate2 computes the translations if it is installed (--engine). torch is then not needed. The first run converts the model and keeps
the converted model in the user's cache folder.

Text is UTF-8. A blank line stays blank. A line of more than --split-above pieces is translated in parts. A part ends at the end of a
sentence if possible, otherwise at the end of a word. A note on standard error lists the lines translated in parts.
"""
_SECONDS_BETWEEN_NOTES = 10
_NAMED_LINES = 5
_BYTE_ORDER_MARK = "\ufeff"


def add_parser(commands) -> None:
    parser = commands.add_parser(
        "translate",
        help="translate text with an export that contains its dictionaries",
        description=HELP,
    )
    parser.add_argument("model", metavar="MODEL.safetensors", help="an export with text (see `export --help`)")
    _add_search_flags(parser)
    _add_input_flags(parser)
    _add_device_flags(parser)
    parser.set_defaults(run=run, prepares_itself=True)


def _add_search_flags(parser) -> None:
    parser.add_argument("--beam", type=int, default=BEAM, metavar="N", help="beam size (default %(default)s)")
    parser.add_argument(
        "--nbest",
        type=int,
        metavar="N",
        help="print the N best translations of each line. The number of the line, from 1, and a tab precede each translation",
    )
    parser.add_argument(
        "--scores",
        action="store_true",
        help="print a score and a tab before each translation: the mean base-2 logarithm of the probabilities of the translation's pieces,"
        " as in fairseq-generate",
    )
    parser.add_argument(
        "--lenpen",
        type=float,
        default=LENPEN,
        metavar="X",
        help="length penalty; more than 1 favours long translations (default %(default)g)",
    )
    parser.add_argument(
        "--max-len-b",
        type=int,
        default=MAX_LEN_B,
        metavar="N",
        help="maximum number of pieces in a translation (default %(default)s, as in fairseq)",
    )


def _add_input_flags(parser) -> None:
    parser.add_argument(
        "--split-above",
        type=int,
        default=SPLIT_ABOVE,
        metavar="N",
        help="maximum number of pieces in a line; longer lines are translated in parts (default %(default)s)",
    )
    parser.add_argument(
        "--batch-size", type=int, default=BATCH_SIZE, metavar="N", help="lines translated at once (default %(default)s)"
    )
    parser.add_argument(
        "--buffer-size",
        type=int,
        default=2000,
        metavar="N",
        help="number of lines to read before translating them (default 2000; on a terminal 1)",
    )


def _add_device_flags(parser) -> None:
    parser.add_argument("--cpu", action="store_true", help="use no GPU")
    parser.add_argument(
        "--cuda-graphs",
        action="store_true",
        help="on a GPU, run each step of the beam search as a CUDA graph; translations may differ only by rounding",
    )
    parser.add_argument(
        "--regenerate-weights",
        action="store_true",
        help="save memory: draw the random tensors of a layer each time the layer runs. This is slower and does not change the"
        " translations. Implies --engine torch",
    )
    translation_engine.add_flags(parser)


def run(known, _):
    nbest = 1 if known.nbest is None else known.nbest
    check_rules({"translate": vars(known) | {"nbest": nbest}}, fairseq_rules.TRANSLATE)
    if sys.stdin is None or sys.stdout is None:
        raise InputError(
            "standard input and output: must be open, because text is read from standard input and translations go to standard output"
        )
    check_file("MODEL", known.model)
    translator = translation_engine.open_translator(known)
    progress, out = _Progress(), sys.stdout.buffer
    interactive = sys.stdin.isatty()
    if interactive:
        _note("type a line; Ctrl-D ends")
    options = {"nbest": nbest, "lenpen": known.lenpen, "max_len_b": known.max_len_b}
    options |= {"batch_size": known.batch_size, "split_above": known.split_above}
    for first, lines in read_lines(sys.stdin.buffer, 1 if interactive else known.buffer_size):
        answers = translator.hypotheses(lines, known.beam, after_batch=progress.count, **options)
        with writing():
            for number, hypotheses in enumerate(answers, first):
                for hypothesis in hypotheses:
                    out.write(_written(number if known.nbest else None, hypothesis, known.scores))
                progress.record(number, hypotheses[0])
            out.flush()
    progress.end(known, translator)


def read_lines(stream: BinaryIO, at_once: int) -> Iterator[tuple[int, list[str]]]:
    """Yield (number of the first line, lines) for each group of lines. Numbers begin with 1. Lines have no line ends.

    Raises:
        InputError: a line is not UTF-8.
    """
    lines: list[str] = []
    first = 1
    for number, line in enumerate(stream, 1):
        lines.append(_decoded(line, number))
        if len(lines) == at_once:
            yield first, lines
            first, lines = number + 1, []
    if lines:
        yield first, lines


def _decoded(line: bytes, number: int) -> str:
    try:
        text = line.removesuffix(b"\n").removesuffix(b"\r").decode()
    except UnicodeDecodeError as error:
        raise InputError(f"standard input is not UTF-8: byte 0x{line[error.start]:02x} in line {number}") from error
    return text.removeprefix(_BYTE_ORDER_MARK) if number == 1 else text


def _written(number, hypothesis, with_score) -> bytes:
    from math import log

    columns = [str(number)] if number else []
    if with_score:
        columns.append(f"{hypothesis.score / log(2):.4f}")
    text = hypothesis.text
    if sys.stdout.isatty():  # an export from someone else must not send control sequences to the terminal
        text = "".join(c if c.isprintable() else "\ufffd" for c in text)
    return ("\t".join([*columns, text]) + "\n").encode()


class _Progress:
    """Print notes on standard error: the number of finished lines every ten seconds, and finally which lines were split or cut short."""

    def __init__(self):
        self.begun = self.noted = time.monotonic()
        self.done = self.done_when_noted = 0
        self.in_parts, self.cut_short = [], []

    def count(self, lines):
        self.done += lines
        if self.done > self.done_when_noted and time.monotonic() - self.noted >= _SECONDS_BETWEEN_NOTES:
            self._note_speed()

    def record(self, number, best):
        if best.parts > 1:
            self.in_parts.append(number)
        if best.cut_short:
            self.cut_short.append(number)

    def end(self, known, translator):
        if 0 < self.done_when_noted < self.done:
            self._note_speed()
        if self.in_parts:
            most = _limit(known.split_above, "--split-above", translator.longest_source())
            _note(f"translated in parts, because these lines have more than {most}: {_named(self.in_parts)}")
        if self.cut_short:
            most = _limit(known.max_len_b, "--max-len-b", translator.longest_target())
            _note(f"cut short at {most}: {_named(self.cut_short)}")

    def _note_speed(self):
        self.noted, self.done_when_noted = time.monotonic(), self.done
        seconds = self.noted - self.begun
        _note(f"{self.done:,} lines in {seconds:.0f} s, {self.done / seconds:.1f} a second")


def _note(text) -> None:
    if sys.stderr is not None:  # None if closed; print would write to standard output instead
        print(f"fairseq-reservoir translate: {text}", file=sys.stderr, flush=True)


def _limit(given, flag, of_model) -> str:
    return f"{given} pieces ({flag})" if given <= of_model else f"{of_model} pieces, the model's maximum length"


def _named(lines) -> str:
    more = len(lines) - _NAMED_LINES
    return f"line {', '.join(map(str, lines[:_NAMED_LINES]))}{f' and {more:,} more' if more > 0 else ''}"
