"""Flags that the scripts have in common."""

import argparse
import os
from pathlib import Path

from prepare import bpe
from prepare.archives import locate
from prepare.console import InputError


def parser(name, description):
    """A parser with the flags of every recipe; ``name`` is that of the folders below data/ and data-bin/."""
    options = argparse.ArgumentParser(
        prog=f"prepare_{name.replace('-', '_')}.sh", description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    options.add_argument("--dest", type=Path, default=Path("data-bin", name), help="folder for fairseq-train (%(default)s)")
    options.add_argument("--work", type=_work, default=Path("data", name), help="folder for archives and text (%(default)s)")
    there = "an archive already downloaded, or a folder of them; repeatable"
    options.add_argument("--archive", action="append", default=[], metavar="PATH", help=there)
    options.add_argument("--mirror", metavar="URL", help="download URL/NAME instead of the public addresses; file:// works")
    options.add_argument("--jobs", type=_positive, default=_processors(), metavar="N", help="processes (%(default)s)")
    return options


def add_bpe(options, size, kind="subword_nmt", extra=()):
    options.add_argument("--bpe", choices=[*extra, *bpe.KINDS], default=kind, help="subword units (%(default)s)")
    options.add_argument(
        "--bpe-size", type=_positive, default=size, metavar="N", help="merges, or for sentencepiece units (%(default)s)"
    )


def archives(options, wanted):
    """Paths by name of the archives ``wanted``, found or downloaded as ``options`` say."""
    if options.dest.resolve() == options.work.resolve():
        raise InputError(f"--dest and --work are both {options.dest}: name two folders")
    return locate(wanted, options.archive, options.mirror, options.work / "archives")


def _work(text):
    if "," in text:
        raise InputError(f"--work {text}: a comma in it would be read as two folders by fairseq-preprocess; name another folder")
    return Path(text)


def _positive(text):
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a positive number")
    return number


def _processors():
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
