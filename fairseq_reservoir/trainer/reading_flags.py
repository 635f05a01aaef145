"""Hook of the function that reads the flags of a fairseq command. The hook adds flags of this package, and checks the values."""

import sys

from ..checkpoint import model_path_checks, other_dictionary
from ..fairseq_repairs import checkpoints, flag_errors, long_samples, processes, start_up, user_dirs
from ..fairseq_repairs.error_report import install_in_command
from ..speed import threads
from ..speed.generation import enable as generation_graphs
from . import data_files


def parse_args_and_arch(original, parser, input_args=None, *args, **kwargs):
    """Hook of fairseq's ``options.parse_args_and_arch``, which every command except ``fairseq-preprocess`` calls.

    ``fairseq-validate`` calls it a second time with ``suppress_defaults``, to get only the flags on its command line.

    Raises:
        InputError: one line with the flag. No data or model has been read yet.
    """
    words = sys.argv[1:] if input_args is None else input_args
    is_complete = not kwargs.get("suppress_defaults")
    is_training = "--max-update" in parser._option_string_actions

    if user_dirs.report_input_errors.is_applied:
        install_in_command()
    if is_training:
        parser.epilog = "Flags of layers, freezing and masks: fairseq-reservoir plan --help"
        other_dictionary.add_flag(parser)
        threads.add_flag(parser)
    generation_graphs.add_flag(parser)
    flag_errors.prepare(parser, words)

    parsed = _parse(original, parser, input_args, *args, **kwargs)
    flags = parsed[0] if isinstance(parsed, tuple) else parsed

    flag_errors.check_parsed(parser, flags, words, is_complete)
    start_up.restore_tpu(parser, flags, words)
    long_samples.read_flags(parser, flags, words)
    checkpoints.write_layers_as_text(flags)
    processes.select_part(parser, flags)
    processes.refuse_shares(parser, flags, words)
    threads.read_flag(flags)
    generation_graphs.read_flag(parser, flags)
    if is_complete:
        model_path_checks.check_flags(flags)
        data_files.check_flags(flags)
    other_dictionary.read_flag(flags, is_training)
    return parsed


def _parse(original, parser, input_args, *args, **kwargs):
    """Call fairseq's function. If ``--arch`` or ``--task`` is missing, raise an error with a message, because fairseq's error has none."""
    try:
        return original(parser, input_args, *args, **kwargs)
    except RuntimeError as error:
        flag_errors.refuse_missing_arch(error)
        raise
    except KeyError as error:
        model_path_checks.refuse_missing_task(error)
        raise
