"""Add the flags of one of our dataclasses to a parser of fairseq."""

from argparse import ArgumentParser
from dataclasses import make_dataclass
from typing import Any

from fairseq.dataclass import FairseqDataclass
from fairseq.dataclass.utils import gen_parser_from_dataclass


def add_flags(parser: ArgumentParser, options: type, **choices: Any) -> None:
    """Add the flags of ``options``, as fairseq adds flags of its dataclasses. ``choices`` is passed to ``gen_parser_from_dataclass``."""
    registered = make_dataclass(options.__name__, [], bases=(options, FairseqDataclass))
    gen_parser_from_dataclass(parser, registered(), **choices)
