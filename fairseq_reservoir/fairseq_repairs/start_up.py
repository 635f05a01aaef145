"""Repairs of what every command meets first: numpy's names, ``--bf16``, hydra's advice, data in the folder that nobody asks for."""

import inspect
import sys
import warnings
from types import SimpleNamespace

import numpy as np
from fairseq import options
from fairseq.data import bucket_pad_length_dataset, data_utils
from fairseq.data.audio import raw_audio_dataset

from ..errors import InputError
from .given import Given
from .repair import repair, wrap

_NUMPY_NAMES = {"int": int, "float": float, "compat": SimpleNamespace(long=np.int64)}


# Looking in the namespace, as numpy 1 answers hasattr for such names with a warning.
@repair("numpy-names", needed=lambda: bool(_NUMPY_NAMES.keys() - vars(np).keys()))
def restore_numpy_names():
    """Give numpy back the names that fairseq still uses.

    numpy 1.24 removed ``np.int`` and ``np.float`` (span masks, the CRF layer), a later numpy 2 ``np.compat`` (blocks of
    text for language models, prompts given to ``fairseq-interactive``): AttributeError in the middle of a run.
    """
    for name in _NUMPY_NAMES.keys() - vars(np).keys():
        setattr(np, name, _NUMPY_NAMES[name])


@repair("length-buckets", needed=lambda: "interpolation" not in inspect.signature(np.percentile).parameters)
def find_buckets_of_lengths():
    """Let ``--num-batch-buckets`` work where numpy 2.4 has taken the old name of an argument away."""

    def get_buckets(original, sizes, num_buckets):
        return np.unique(np.percentile(sizes, np.linspace(0, 100, num_buckets + 1), method="lower")[1:])

    for user in (data_utils, bucket_pad_length_dataset, raw_audio_dataset):  # two of them have it by name
        wrap(user, "get_buckets", get_buckets)


@repair("unused-validation")
def name_unused_validation():
    """Name in one line the validation data of a folder that no flag asks for."""

    def raise_if_ignored(original, cfg):
        try:
            original(cfg)
        except ValueError as error:
            raise InputError(f"--valid-subset {cfg.dataset.valid_subset}: {error}") from error

    wrap(data_utils, "raise_if_valid_subsets_unintentionally_ignored", raise_if_ignored)


@repair("bf16-off-tpu")
def keep_bf16_off_tpu():
    """Let ``--bf16`` mean the number format alone; ``--tpu`` still means a TPU.

    ``parse_args_and_arch`` turns every ``--bf16`` into ``--bf16 --tpu``, which on a CPU or GPU ends with ``'NoneType'
    object has no attribute 'xla_device'``. The commands look the function up after the plugin was imported.
    """

    def parse_args_and_arch(original, parser, input_args=None, *args, **kwargs):
        parsed = original(parser, input_args, *args, **kwargs)
        namespace = parsed[0] if isinstance(parsed, tuple) else parsed
        words = sys.argv[1:] if input_args is None else input_args
        if Given(namespace).bf16 and "--tpu" not in words:
            namespace.tpu = bool(parser.get_default("tpu"))
        return parsed

    wrap(options, "parse_args_and_arch", parse_args_and_arch)


@repair("hydra-advice")
def hush_hydra():
    """Hide the advice that hydra gives about fairseq's own use of it.

    Every command starts with some twenty lines of deprecation warnings that no user can act upon and that bury the
    message of a mistyped flag. Filters that the user has set come first.
    """
    warnings.filterwarnings("ignore", category=UserWarning, module=r"hydra\.", append=True)
    warnings.filterwarnings("ignore", message=r"\s*'\w+' is validated against ConfigStore schema", append=True)
