"""``fairseq-reservoir translate``: text in, text out, by a model of one file."""

import sys
import time
from collections.abc import Iterator
from typing import BinaryIO

from ..errors import InputError
from ..files import check_file
from ..options import fairseq_rules
from ..options.number_rules import check as check_rules
from ..options.translation_defaults import BATCH_SIZE, BEAM, LENPEN, MAX_LEN_B, SPLIT_ABOVE
from .standard_output import writing

HELP = """\
Translates the lines of standard input with an export that carries its dictionaries and pieces, one line each and in
their order; it needs no other file:

  fairseq-reservoir export checkpoints/checkpoint_best.pt model.safetensors --sentencepiece-model pieces/joint.model
  fairseq-reservoir translate model.safetensors < text.en > text.de

Text is UTF-8. A blank line stays blank. A line of more than --split-above pieces is translated in parts, which end with
a sentence or else with a word; a note on standard error names the line.
"""
_SECONDS_BETWEEN_NOTES = 10
_NAMED_LINES = 5
_BYTE_ORDER_MARK = "\ufeff"


def add_parser(commands) -> None:
    parser = commands.add_parser(
        "translate",
        help="translate text with an export that carries its dictionaries",
        description=HELP,
    )
    parser.add_argument("model", metavar="MODEL.safetensors", help="an export with text (see `export --help`)")
    parser.add_argument(
        "--beam", type=int, default=BEAM, metavar="N", help="hypotheses that are followed (default %(default)s)"
    )
    parser.add_argument(
        "--nbest",
        type=int,
        metavar="N",
        help="print the N best of each line, each behind the line's number, from 1, and a tab",
    )
    parser.add_argument(
        "--scores",
        action="store_true",
        help="print before each translation its score and a tab: the mean binary logarithm of its pieces' probabilities, as"
        " fairseq-generate",
    )
    parser.add_argument(
        "--lenpen", type=float, default=LENPEN, metavar="X", help="more than 1 favours long ones (default %(default)g)"
    )
    parser.add_argument(
        "--max-len-b",
        type=int,
        default=MAX_LEN_B,
        metavar="N",
        help="pieces of a translation at most (default %(default)s, as fairseq's)",
    )
    parser.add_argument(
        "--split-above",
        type=int,
        default=SPLIT_ABOVE,
        metavar="N",
        help="pieces of a line that is translated as a whole (default %(default)s)",
    )
    parser.add_argument(
        "--batch-size", type=int, default=BATCH_SIZE, metavar="N", help="lines translated at once (default %(default)s)"
    )
    parser.add_argument(
        "--buffer-size",
        type=int,
        default=2000,
        metavar="N",
        help="lines read before the first of them is printed (default 2000; 1 answers each line at once, as on a terminal)",
    )
    parser.add_argument("--cpu", action="store_true", help="use no GPU")
    parser.set_defaults(run=run)


def run(known, _):
    import torch

    from ..checkpoint import load_translator

    nbest = 1 if known.nbest is None else known.nbest
    check_rules({"translate": vars(known) | {"nbest": nbest}}, fairseq_rules.TRANSLATE)
    if sys.stdin is None or sys.stdout is None:
        raise InputError("standard input and output: must be open; text comes from one and goes to the other")
    check_file("MODEL", known.model)
    translator = load_translator(known.model)
    if torch.cuda.is_available() and not known.cpu:
        translator.cuda()
    progress, out = _Progress(), sys.stdout.buffer
    interactive = sys.stdin.isatty()
    if interactive:
        _say("type a line; Ctrl-D ends")
    options = {"nbest": nbest, "lenpen": known.lenpen, "max_len_b": known.max_len_b}
    options |= {"batch_size": known.batch_size, "split_above": known.split_above}
    for first, lines in read_lines(sys.stdin.buffer, 1 if interactive else known.buffer_size):
        answers = translator.hypotheses(lines, known.beam, after_batch=progress.count, **options)
        with writing():
            for number, hypotheses in enumerate(answers, first):
                for hypothesis in hypotheses:
                    out.write(_written(number if known.nbest else None, hypothesis, known.scores))
                progress.look_at(number, hypotheses[0])
            out.flush()
    progress.end(known, translator)


def read_lines(stream: BinaryIO, at_once: int) -> Iterator[tuple[int, list[str]]]:
    """Groups of lines without their ends, each with the number of its first line, from 1.

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
    if sys.stdout.isatty():  # a stranger's file must not move the cursor
        text = "".join(c if c.isprintable() else "\ufffd" for c in text)
    return ("\t".join([*columns, text]) + "\n").encode()


class _Progress:
    """Notes on standard error: every ten seconds the number of lines, and at the end the lines that were split or cut short."""

    def __init__(self):
        self.begun = self.told = time.monotonic()
        self.done = self.done_when_told = 0
        self.in_parts, self.cut_short = [], []

    def count(self, lines):
        self.done += lines
        if self.done > self.done_when_told and time.monotonic() - self.told >= _SECONDS_BETWEEN_NOTES:
            self._tell()

    def look_at(self, number, best):
        if best.parts > 1:
            self.in_parts.append(number)
        if best.cut_short:
            self.cut_short.append(number)

    def end(self, known, translator):
        if 0 < self.done_when_told < self.done:
            self._tell()
        if self.in_parts:
            most = _limit(known.split_above, "--split-above", translator.longest_source())
            _say(f"translated in parts, for more than {most}: {_named(self.in_parts)}")
        if self.cut_short:
            most = _limit(known.max_len_b, "--max-len-b", translator.longest_target())
            _say(f"cut short at {most}: {_named(self.cut_short)}")

    def _tell(self):
        self.told, self.done_when_told = time.monotonic(), self.done
        seconds = self.told - self.begun
        _say(f"{self.done:,} lines in {seconds:.0f} s, {self.done / seconds:.1f} a second")


def _say(text) -> None:
    if sys.stderr is not None:  # closed; print would take standard output in its place
        print(f"fairseq-reservoir translate: {text}", file=sys.stderr, flush=True)


def _limit(asked, flag, of_model) -> str:
    return f"{asked} pieces ({flag})" if asked <= of_model else f"{of_model} pieces, for which the model has positions"


def _named(lines) -> str:
    more = len(lines) - _NAMED_LINES
    return f"line {', '.join(map(str, lines[:_NAMED_LINES]))}{f' and {more:,} more' if more > 0 else ''}"
