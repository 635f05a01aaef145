"""Repairs that every command needs at its start: numpy's old names, ``--bf16``, hydra's warnings, unused validation data."""

import inspect
import warnings
from types import SimpleNamespace

import numpy as np
from fairseq.data import bucket_pad_length_dataset, data_utils
from fairseq.data.audio import raw_audio_dataset

from ..errors import InputError
from .given import Given
from .repair import repair, wrap

_NUMPY_NAMES = {"int": int, "float": float, "compat": SimpleNamespace(long=np.int64)}


# Checked in the namespace, because numpy 1 warns when hasattr is called for such names.
@repair("numpy-names", needed=lambda: bool(_NUMPY_NAMES.keys() - vars(np).keys()))
def restore_numpy_names():
    """Restore the names in numpy that fairseq still uses.

    numpy 1.24 removed ``np.int`` and ``np.float``, which fairseq's span masks and CRF layer use. A release after numpy 2.0
    removed ``np.compat``, which fairseq uses in ``fairseq-interactive`` and in the text blocks of language models. Without this
    repair, a run ends in the middle with an AttributeError.
    """
    for name in _NUMPY_NAMES.keys() - vars(np).keys():
        setattr(np, name, _NUMPY_NAMES[name])


@repair("length-buckets", needed=lambda: "interpolation" not in inspect.signature(np.percentile).parameters)
def find_buckets_of_lengths():
    """Let ``--num-batch-buckets`` work with numpy 2.4, which removed an argument of ``np.percentile``."""

    def get_buckets(original, sizes, num_buckets):
        return np.unique(np.percentile(sizes, np.linspace(0, 100, num_buckets + 1), method="lower")[1:])

    for user in (data_utils, bucket_pad_length_dataset, raw_audio_dataset):  # two of them import it by name
        wrap(user, "get_buckets", get_buckets)


@repair("unused-validation")
def name_unused_validation():
    """Report, in one line, unused validation data in the DATA folder."""

    def raise_if_ignored(original, cfg):
        try:
            original(cfg)
        except ValueError as error:
            raise InputError(f"--valid-subset {cfg.dataset.valid_subset}: {error}") from error

    wrap(data_utils, "raise_if_valid_subsets_unintentionally_ignored", raise_if_ignored)


@repair("bf16-off-tpu")
def keep_bf16_off_tpu():
    """Keep ``--bf16`` from switching on ``--tpu``.

    fairseq's ``parse_args_and_arch`` adds ``--tpu`` to every ``--bf16``. On a CPU or GPU, the training then ends with ``'NoneType' object
    has no attribute 'xla_device'``. ``trainer.reading_flags`` calls ``restore_tpu``.
    """


def restore_tpu(parser, flags, words) -> None:
    """Set ``flags.tpu`` to the default of the parser, if the command line does not contain ``--tpu``."""
    if keep_bf16_off_tpu.is_applied and Given(flags).bf16 and "--tpu" not in words:
        flags.tpu = bool(parser.get_default("tpu"))


@repair("hydra-advice")
def hush_hydra():
    """Hide hydra's deprecation warnings about fairseq's use of hydra.

    Every command starts with about twenty lines of these warnings. The message about a mistyped flag is easily missed among these lines,
    and a user cannot avoid the warnings. The user's own warning filters still have priority.
    """
    warnings.filterwarnings("ignore", category=UserWarning, module=r"hydra\.", append=True)
    warnings.filterwarnings("ignore", message=r"\s*'\w+' is validated against ConfigStore schema", append=True)
