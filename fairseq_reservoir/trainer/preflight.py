"""Check flags, save folder, checkpoint and data before a training starts. All wrong flags are reported in one line."""

import functools
import logging
import os
import stat
import sys
from pathlib import Path

from fairseq.models import MODEL_DATACLASS_REGISTRY

from ..checkpoint.save_dir_lock import train_alone
from ..checkpoint.training_start import check_start, check_whole
from ..errors import InputError
from ..fairseq_repairs.cpu_launch import (
    call_main as call_main_on_cpus,
    is_first_on_host,
    is_first_process,
    is_training,
    start_processes_on_cpus,
    uses_cpu,
)
from ..fairseq_repairs.interactive import call_in_a_session
from ..fairseq_repairs.long_samples import name_long_sentences
from ..fairseq_repairs.unknown_words import replace_unknown_words
from ..freezing import freeze_skip_flags
from ..options.component_options import ComponentOptions
from ..options.fairseq_flags import choice_of
from ..options.flags import check_texts
from ..options.layer_options import FrozenLayerOptions
from ..options.number_rules import collect, refuse
from ..options.reading import read
from ..options.speed_options import FastOptions
from ..options.supermask_options import MaskOptions
from ..speed import freeze_cache, threads
from . import fairseq_flags
from .data_files import check_data
from .frozen_guard import refuse_quantization
from .likely_mistakes import warn_of_likely_mistakes
from .rank_checks import refuse_sharding
from .rank_flags import compare_flags

# Most bytes of a file name on Linux and macOS, and of a path to which the name of a checkpoint is added.
_LONGEST_NAME, _LONGEST_PATH = 255, 3800


def call_main(original, cfg, main, **kwargs):
    """Hook of fairseq's ``call_main``, which runs a command in one process or more.

    The hook checks a training before its processes start. On CPUs, the hook also starts the processes, because fairseq only starts one
    process per GPU.
    """
    if is_training(main):
        log_to_standard_output()
        check_training(cfg)
        warn_of_likely_mistakes(cfg)
        main = functools.partial(start_together, main)
    if replace_unknown_words.is_applied or name_long_sentences.is_applied:
        original = functools.partial(call_in_a_session, original)
    if start_processes_on_cpus.is_applied:
        return call_main_on_cpus(original, cfg, main, **kwargs)
    return original(cfg, main, **kwargs)


def start_together(main, cfg, **kwargs):
    """Compare the flags of all ranks, then run fairseq's ``main`` on this rank."""
    compare_flags(cfg)
    return train_alone(main, cfg, **kwargs)


def log_to_standard_output():
    """Configure logging if it is not configured yet, for example in a notebook. fairseq-train has already configured logging."""
    if not logging.root.handlers:
        form = "%(asctime)s | %(levelname)s | %(name)s | %(message)s"
        logging.basicConfig(format=form, datefmt="%Y-%m-%d %H:%M:%S", level=logging.INFO, stream=sys.stdout)


def check_training(cfg):
    """Check the flags, the save folder and the data.

    Raises:
        InputError: the training could not start or could not be saved.
    """
    found: list[str] = []
    if is_first_process(cfg):
        with collect(found):
            check_save_dir(cfg.checkpoint.save_dir)
        with collect(found):
            check_log_file(cfg.common.log_file)
    for check, part in (
        (fairseq_flags.check, cfg),
        (refuse_empty_texts, cfg.model),
        (refuse_regeneration, cfg.model),
        (freeze_skip_flags.check_flags, cfg),
        (freeze_cache.check_flags, cfg),
        (refuse_sharding, cfg),
        (refuse_fp16_of_frozen_layers, cfg),
        (refuse_flat_fp16_on_cpus, cfg),
        (refuse_quantization, cfg),
    ):
        with collect(found):
            check(part)
    with collect(found):
        threads.read_setting()
    refuse(found)
    if is_first_process(cfg):
        check_whole(cfg.checkpoint)
    check_start(cfg.checkpoint, cfg.model)
    if is_first_on_host(cfg.distributed_training):
        check_data(cfg)


def refuse_regeneration(model):
    """Refuse ``--regenerate-weights``, which is for inference."""
    if read(FastOptions, model).regenerate_weights:
        raise InputError(
            "--regenerate-weights: not supported in training; give it to fairseq-generate as"
            " --model-overrides \"{'regenerate_weights': True}\""
        )


def refuse_fp16_of_frozen_layers(cfg):
    """Refuse ``--frozen-dtype`` with ``--fp16``: the model is float16 already, so another dtype would save no memory and round twice."""
    dtype = read(FrozenLayerOptions, cfg.model).frozen_dtype
    if cfg.common.fp16 and dtype != "fp32":
        raise InputError(
            f"--frozen-dtype {dtype}: not supported with --fp16, which sets the type of the whole model; remove one of them"
        )


def refuse_flat_fp16_on_cpus(cfg):
    """Refuse ``--fp16`` on CPUs if fairseq would store the fp32 weights in one flat tensor, because it allocates this tensor on a GPU."""
    common = cfg.common
    if uses_cpu(cfg) and common.fp16 and not (common.fp16_no_flatten_grads or common.memory_efficient_fp16):
        raise InputError("--fp16: needs a GPU; on CPUs, give --bf16 or --memory-efficient-fp16 instead")


def refuse_empty_texts(model):
    """Refuse model flags with an empty string as value. Only hydra can pass empty strings, because the command line is already checked."""
    dataclass = MODEL_DATACLASS_REGISTRY.get(choice_of(model), object)
    for options in (ComponentOptions, MaskOptions):
        if issubclass(dataclass, options):
            check_texts(model, options)


def check_log_file(path):
    """Refuse a ``--log-file`` that cannot be written. Also refuse a pipe, because fairseq would wait for a process that reads it."""
    if path is None:
        return
    folder, mode = os.path.dirname(os.path.abspath(path)), None
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        raise InputError(f"--log-file {path}: cannot be written ({getattr(error, 'strerror', error)})") from error
    if not path or not os.path.isdir(folder) or (mode is not None and (stat.S_ISDIR(mode) or stat.S_ISFIFO(mode))):
        raise InputError(f"--log-file {path or repr(path)}: must be a file in an existing folder")
    written = folder if mode is None else path
    if not os.access(written, os.W_OK):
        raise InputError(f"--log-file {path}: {written} cannot be written")


def check_save_dir(save_dir):
    """Refuse a ``--save-dir`` in which no checkpoint can be written."""
    if "://" in save_dir:
        return
    if not save_dir.strip():
        raise InputError(f"--save-dir {save_dir!r}: is empty; name a folder")
    if any(ord(character) < 32 for character in save_dir):
        raise InputError(f"--save-dir {save_dir!r}: contains a control character; name another folder")
    folder = Path(save_dir).absolute()
    if any(len(os.fsencode(part)) > _LONGEST_NAME for part in folder.parts) or len(os.fsencode(folder)) > _LONGEST_PATH:
        raise InputError(f"--save-dir {save_dir}: is too long for the name of a folder; give a shorter name")
    while not os.path.lexists(folder):
        folder = folder.parent
    if not folder.is_dir():
        raise InputError(f"--save-dir: got {save_dir}, but {folder} is not a folder")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise InputError(f"--save-dir: got {save_dir}, but {folder} cannot be written")
