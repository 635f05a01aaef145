"""Functions in place of those with which every command of fairseq sets up a task, builds a model, and loads models and their task."""

import os

from fairseq.utils import split_paths

from ..checkpoint import fairseq_loader, unregistered
from ..fairseq_repairs import flag_errors, long_samples
from ..fairseq_repairs.error_report import SEE_DATA
from ..fairseq_repairs.given import Given
from ..fairseq_repairs.index_files import MAKE_IT
from .data_files import MissingFile


def setup_task(original, cfg, *args, **kwargs):
    """In place of ``tasks.setup_task``: fairseq's function, which reads the dictionaries.

    Raises:
        InputError: the task is not registered, or its folder or a dictionary is missing.
    """
    unregistered.check_task(cfg)
    try:
        return original(cfg, *args, **kwargs)
    except FileNotFoundError as error:
        folders = split_paths(str(Given(cfg).data or ""))
        if not (error.filename and (error.filename in folders or os.path.basename(error.filename).startswith("dict"))):
            raise
        raise MissingFile(f"{error.filename}: no such file; {MAKE_IT} ({SEE_DATA})") from error


def build_model(original, cfg, *args, **kwargs):
    """In place of ``models.build_model``: fairseq's function.

    Raises:
        InputError: the architecture is not registered, or the model refuses a flag.
    """
    unregistered.check_architecture(cfg)
    try:
        return original(cfg, *args, **kwargs)
    except ValueError as error:
        mistake = flag_errors.error_of_model(error)
        if mistake is error:
            raise
        raise mistake from error


def load_model_ensemble_and_task(original, filenames, *args, **kwargs):
    """In place of the function of ``checkpoint_utils``: fairseq's function, then the dictionaries and the block size of the models.

    Raises:
        InputError: the models were trained with other dictionaries than those of the task.
    """
    models, config, task = fairseq_loader.load_with_dictionaries(original, filenames, *args, **kwargs)
    long_samples.use_block_of_training(config, task)
    return models, config, task
