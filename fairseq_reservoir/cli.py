"""The command ``fairseq-reservoir``: tools that need no data."""

import argparse
import contextlib
import dataclasses
import logging
import sys
import textwrap
import warnings

from .errors import InputError

PLAN_HELP = """\
Prints the slot table of a model without data: what each layer is, what is trained, what is frozen, parameters and matmul
FLOPs per token. Takes every flag of fairseq-train, for example

  fairseq-reservoir plan --arch reservoir_transformer_iwslt_de_en --reservoir-encoder LLFLFLL
"""


def main(arguments=None) -> None:
    """Entry point; ``arguments`` default to the command line's."""
    parser = argparse.ArgumentParser("fairseq-reservoir", description=__doc__.splitlines()[0].split(": ")[1])
    commands = parser.add_subparsers(
        dest="command", required=True, metavar="COMMAND", parser_class=_ParserWithOurFlags
    )
    plan_parser = commands.add_parser(
        "plan",
        help="print what a model trains and what it freezes, without data",
        description=PLAN_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    plan_parser.add_argument("--arch", required=True, help="an architecture of this plugin or of fairseq")
    plan_parser.add_argument("--source-words", type=int, default=10000, metavar="N", help="dictionary size (default 10000)")
    plan_parser.add_argument("--target-words", type=int, default=10000, metavar="N", help="dictionary size (default 10000)")
    known, fairseq_flags = parser.parse_known_args(arguments)
    try:
        with _quiet():
            table = plan(known.arch, fairseq_flags, known.source_words, known.target_words)
    except InputError as error:
        sys.exit(f"fairseq-reservoir: error: {error}")
    print(table)


def plan(arch: str, fairseq_flags: list[str], source_words: int, target_words: int):
    """The slot table of an architecture, built without memory for its tensors.

    Args:
        arch: a registered architecture.
        fairseq_flags: flags of fairseq-train.
        source_words, target_words: dictionary sizes; a joined dictionary (--share-all-embeddings) has ``source_words``.

    Raises:
        InputError: the architecture is unknown, or its flags contradict each other.
    """
    import torch
    from fairseq import models, options
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf

    from .slot_table import compile_table

    if arch not in models.ARCH_MODEL_REGISTRY:
        ours = sorted(name for name in models.ARCH_MODEL_REGISTRY if "reservoir" in name or "supermask" in name)
        raise InputError(f"--arch {arch}: unknown; the plugin's own are {', '.join(ours)}")
    parser = options.get_training_parser()
    args = options.parse_args_and_arch(parser, input_args=["no-data", "--arch", arch, *fairseq_flags])
    cfg = convert_namespace_to_omegaconf(args)
    with torch.device("meta"):
        model = models.build_model(cfg.model, _NoTask(source_words, target_words, args))
    if hasattr(model, "slot_table"):
        return model.slot_table
    return compile_table([(n, p.shape) for n, p in model.named_parameters()], plans={}, seed=args.seed)


class _ParserWithOurFlags(argparse.ArgumentParser):
    """Adds the plugin's flags to ``--help``; written only then, since importing fairseq takes seconds."""

    def format_help(self):
        return f"{super().format_help()}\n{_our_flags()}\n"


def _our_flags() -> str:
    """The flags that the plugin adds to fairseq-train, which fairseq's own --help leaves out."""
    from .transformer_options import ReservoirOptions

    lines = ["flags of this plugin, for fairseq-train too:"]
    for option in dataclasses.fields(ReservoirOptions):
        if not option.name.startswith("_"):
            lines.append(f"  --{option.name.replace('_', '-')} {option.metadata.get('metavar', '')}".rstrip())
            lines.append(textwrap.indent(textwrap.fill(option.metadata["help"], 90), " " * 6))
    return "\n".join(lines)


@contextlib.contextmanager
def _quiet():
    """Without the warnings and notes that importing and building print on every run."""
    level = logging.root.manager.disable
    logging.disable(logging.INFO)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)


class _NoTask:
    """As much of a translation task as a model needs to be built."""

    def __init__(self, source_words, target_words, args):
        self.args = self.cfg = args
        self.source_dictionary = _dictionary(source_words)
        joined = getattr(args, "share_all_embeddings", False)
        self.target_dictionary = self.source_dictionary if joined else _dictionary(target_words)


def _dictionary(words):
    from fairseq.data import Dictionary

    dictionary = Dictionary()
    for i in range(words - len(dictionary)):
        dictionary.add_symbol(f"word{i}")
    return dictionary


if __name__ == "__main__":
    main()
