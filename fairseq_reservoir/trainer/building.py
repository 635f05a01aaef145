"""Hooks around the fairseq functions that set up a task, build a model, or load a task and its models."""

import os

from fairseq.utils import split_paths

from ..checkpoint import fairseq_loader, unregistered
from ..fairseq_repairs import flag_errors, log_files, long_samples
from ..fairseq_repairs.error_report import SEE_DATA
from ..fairseq_repairs.given import Given
from ..fairseq_repairs.index_files import MAKE_IT
from .data_files import MissingFile


def setup_task(original, cfg, *args, **kwargs):
    """Hook of ``tasks.setup_task``. Format the lines of ``--log-file``, and report a missing data folder or dictionary in one line.

    Raises:
        InputError: the task is not registered, or the data folder or a dictionary is missing.
    """
    log_files.format_log_file()
    unregistered.check_task(cfg)
    try:
        return original(cfg, *args, **kwargs)
    except FileNotFoundError as error:
        folders = split_paths(str(Given(cfg).data or ""))
        if not (error.filename and (error.filename in folders or os.path.basename(error.filename).startswith("dict"))):
            raise
        raise MissingFile(f"{error.filename}: no such file; {MAKE_IT} ({SEE_DATA})") from error


def build_model(original, cfg, *args, **kwargs):
    """Hook of ``models.build_model``. Report an invalid flag in one line.

    Raises:
        InputError: the architecture is not registered, or the model rejects a flag.
    """
    unregistered.check_architecture(cfg)
    try:
        return original(cfg, *args, **kwargs)
    except ValueError as error:
        flag_errors.refuse_flag_of_model(error)
        raise


def load_model_ensemble_and_task(original, filenames, *args, **kwargs):
    """Hook of ``checkpoint_utils.load_model_ensemble_and_task``.

    The hook compares the models' dictionaries with the task's. In ``fairseq-eval-lm``, the hook also sets the block size to that of the
    model's training.

    Raises:
        InputError: a model was trained with dictionaries that differ from the task's.
    """
    models, config, task = fairseq_loader.load_with_dictionaries(original, filenames, *args, **kwargs)
    long_samples.use_block_of_training(config, task)
    return models, config, task
