"""The command ``fairseq-reservoir``: tools around plans and checkpoints."""

import argparse
import contextlib
import dataclasses
import logging
import sys
import textwrap
import warnings
from pathlib import Path

from . import __version__
from .commands import average, doctor, dump_embeddings, export, materialize, plan as plan_command, report, size, sweep
from .commands.plan import plan  # noqa: F401
from .errors import InputError, check_words, in_one_line


def main(arguments=None) -> None:
    """Entry point; ``arguments`` default to the command line's."""
    parser = argparse.ArgumentParser("fairseq-reservoir", description=__doc__.splitlines()[0].split(": ")[1])
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND", parser_class=_ParserWithOurFlags)
    for command in (plan_command, size, export, materialize, average, dump_embeddings, report, sweep, doctor):
        command.add_parser(commands)
    for name, subparser in commands.choices.items():
        if name not in ("report", "sweep", "doctor"):  # which build no model
            subparser.add_argument("--user-dir", metavar="DIR", help="folder that registers kinds of layer of your own")
    try:
        check_words(sys.argv[1:] if arguments is None else arguments)
        known, fairseq_flags = parser.parse_known_args(arguments)
        if fairseq_flags and not hasattr(known, "takes_fairseq_flags"):
            commands.choices[known.command].error(f"unrecognized arguments: {' '.join(fairseq_flags)}")
        with _quiet():
            _import_user_dir(getattr(known, "user_dir", None))
            result = known.run(known, fairseq_flags)
    except InputError as error:
        sys.exit(f"fairseq-reservoir: error: {error}")
    print(result)


def _import_user_dir(folder):
    """As fairseq's commands import it; the plugin itself is here already."""
    if folder is None or Path(folder).name == Path(__file__).parent.name:
        return
    if not (Path(folder) / "__init__.py").is_file():
        raise InputError(f"--user-dir {folder}: not a folder with a file __init__.py")
    from fairseq.utils import import_user_module

    import_user_module(argparse.Namespace(user_dir=folder))


class _ParserWithOurFlags(argparse.ArgumentParser):
    """Adds the plugin's flags to ``--help`` where they can be given; only then, since importing fairseq takes seconds.

    A mistake is answered by one line, without the usage.
    """

    def error(self, message):
        self.exit(2, f"{self.prog}: error: {in_one_line(message)}\n")

    def format_help(self):
        text = super().format_help()
        return f"{text}\n{_our_flags()}\n" if self.get_default("takes_fairseq_flags") else text


def _our_flags() -> str:
    """The flags that the plugin adds to fairseq-train, which fairseq's own --help leaves out."""
    from .options.component_options import ComponentOptions
    from .options.language_model_options import WordVectorOptions
    from .options.layer_options import ReservoirOptions
    from .options.roberta_options import RobertaVectorOptions
    from .options.supermask_options import MaskOptions
    from .training.freeze_skip import FreezeSkipOptions

    lines = []
    groups = {"reservoir_*": ReservoirOptions, "supermask_*": MaskOptions, "*_lm": WordVectorOptions}
    groups |= {
        "supermask_*_roberta": RobertaVectorOptions,
        "frozen_* (frozen_A, for every A of fairseq)": ComponentOptions,
    }
    groups = {f"the {models} architectures, for fairseq-train too": options for models, options in groups.items()}
    groups["--optimizer freeze_skip and freeze_skip_NAME, for fairseq-train"] = FreezeSkipOptions
    for whose, options in groups.items():
        lines.append(f"flags of {whose}:")
        for option in dataclasses.fields(options):
            if not option.name.startswith("_"):
                lines.append(f"  --{option.name.replace('_', '-')} {option.metadata.get('metavar', '')}".rstrip())
                lines.append(textwrap.indent(textwrap.fill(option.metadata["help"], 90), " " * 6))
        lines.append("")
    return "\n".join(lines).rstrip()


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


if __name__ == "__main__":
    main()
