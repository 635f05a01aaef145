"""Command-line flags that all scripts share."""

import argparse
import os
import re
import sys
from pathlib import Path

from prepare import bpe
from prepare.archives import locate
from prepare.console import InputError


def parser(name, description):
    """Create a parser with the flags of every recipe. ``name`` is the name of its folders in data/ and data-bin/."""
    options = _Parser(
        prog=f"prepare_{name.replace('-', '_')}.sh",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    options.add_argument(
        "--dest", type=_folder, default=Path("data-bin", name), help="folder for fairseq-train (%(default)s)"
    )
    options.add_argument(
        "--work", type=_work, default=Path("data", name), help="folder for archives and text (%(default)s)"
    )
    there = "an archive already downloaded, or a folder of them; repeatable"
    options.add_argument("--archive", action="append", default=[], metavar="PATH", help=there)
    options.add_argument(
        "--mirror",
        type=_address,
        metavar="URL",
        help="download URL/NAME instead of the public addresses; file:// works",
    )
    options.add_argument("--jobs", type=_positive, default=_processors(), metavar="N", help="processes (%(default)s)")
    return options


def add_bpe(options, size, kind="subword_nmt", extra=()):
    options.add_argument("--bpe", choices=[*extra, *bpe.KINDS], default=kind, help="subword units (%(default)s)")
    options.add_argument(
        "--bpe-size", type=_positive, default=size, metavar="N", help="merges, or for sentencepiece units (%(default)s)"
    )


def archives(options, wanted):
    """Find or download the archives ``wanted`` according to ``options``. Return paths by name."""
    if options.dest.resolve() == options.work.resolve():
        raise InputError(f"--dest and --work are both {options.dest}: name two folders")
    return locate(wanted, options.archive, options.mirror, options.work / "archives")


class _Parser(argparse.ArgumentParser):
    """Parser that raises InputError, so that errors are one line."""

    def parse_known_args(self, args=None, namespace=None):
        """Refuse ``--flag=--``, which argparse reads as an empty list for every type of flag."""
        for word in sys.argv[1:] if args is None else args:
            if word.startswith("--") and word.endswith("=--"):
                raise InputError(f"{word.removesuffix('=--')} '--': is not a value")
        return super().parse_known_args(args, namespace)

    def error(self, message):
        raise InputError(message.removeprefix("argument "))


def _work(text):
    if "," in text:
        raise InputError(
            f"--work {text}: a comma in it would be read as two folders by fairseq-preprocess; name another folder"
        )
    return _folder(text)


def _folder(text):
    """Parse the name of a folder that can be created. Neither it nor a folder above it may be a file."""
    path = Path(text)
    if not text.strip() or not path.name:
        raise argparse.ArgumentTypeError(f"{text!r} is not a name of a folder")
    if str(path).startswith("-"):
        raise argparse.ArgumentTypeError(
            f"{text!r}: fairseq-preprocess would read the dash as a flag; give a full path"
        )
    file = next((above for above in (path, *path.parents) if above.exists() and not above.is_dir()), None)
    if file:
        raise argparse.ArgumentTypeError(f"{text!r}: {file} is not a folder")
    return path


def _address(text):
    if not re.match(r"(https?|ftp|file)://.", text):
        raise argparse.ArgumentTypeError(
            f"{text!r} is not an address; it must begin with https://, http://, ftp:// or file://"
        )
    return text


def _positive(text):
    if not re.fullmatch(r"[0-9]{1,9}", text) or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a positive number")
    return int(text)


def _processors():
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
