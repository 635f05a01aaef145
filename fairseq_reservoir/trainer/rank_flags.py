"""Refuse ranks of one run that were started with different flags.

Ranks with different ``--lr`` or ``--optimizer`` would train together without a warning, and update their copies of the model in
different ways. With different ``--max-update`` or ``--criterion`` they would wait for each other forever.
"""

import hashlib
import os
from argparse import Namespace
from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from omegaconf import OmegaConf

from ..checkpoint import other_dictionary
from ..errors import InputError, flag_of
from ..fairseq_repairs import in_order, repair
from ..fairseq_repairs.version import __version__

# Options that may differ between ranks, in any option group, because older models and tasks store all flags in their own group.
MAY_DIFFER = frozenset(
    # The rank of the process, which fairseq may derive from the number of GPUs of the host.
    # The process group itself checks that all ranks have the same world size.
    "distributed_rank distributed_world_size distributed_num_procs distributed_init_method distributed_port distributed_no_spawn "
    "nprocs_per_node device_id checkpoint_suffix "
    # The files and the processors of a host. rank_data compares the data itself.
    "data user_dir plasma_path num_workers data_buffer_size threads freeze_cache "
    # Paths of checkpoints. start_stack compares the tensors in them.
    "start_encoder_from start_decoder_from "
    # Logs.
    "log_format log_file log_interval no_progress_bar tensorboard_logdir wandb_project aim_repo aim_run_hash azureml_logging "
    "job_logging_cfg".split()
)
# Option groups that are chosen by a flag with another name.
_FLAGS_OF_GROUPS = {"model": "arch"}


def gather(value: Any, group: Any = None) -> list:
    """Return the value of every rank of a process group, in the order of the ranks."""
    values = [None] * dist.get_world_size(group)
    dist.all_gather_object(values, value, group=group)
    return values


def compare_flags(cfg: Any) -> None:
    """Compare the hashes of the configuration on all ranks of a run. Every rank must call this.

    The configuration itself is exchanged only if hashes differ.

    Raises:
        InputError: the message names the first rank and option that differ from rank 0.
    """
    if not (dist.is_available() and dist.is_initialized()):
        return
    options = _software() | options_of(cfg)
    if len(set(gather(hashlib.sha256(repr(options).encode()).hexdigest()))) > 1:
        refuse_other_flags(gather(options))


def options_of(cfg: Any) -> dict[str, str]:
    """Return the options that need the same value on all ranks, as strings: ``{"optimization.lr": "[0.001]"}``.

    The choices of components, such as ``optimizer._name``, come first.
    """
    options = OmegaConf.to_container(cfg, resolve=True, enum_to_str=True) if OmegaConf.is_config(cfg) else cfg
    found = dict(_flat(options))
    return {name: found[name] for name in sorted(found, key=lambda name: not name.endswith("._name"))}


def _software() -> dict[str, str]:
    """Return software versions and the environment variables of this package that affect a training, by the names that messages use."""
    return {
        "the version of fairseq_reservoir": __version__,
        "the version of torch": torch.__version__,
        repair.WITHOUT: ",".join(sorted(repair.switched_off(in_order.REPAIRS))) or "not set",
        other_dictionary.ALLOW: os.environ.get(other_dictionary.ALLOW, "not set"),
    }


def _flat(options, prefix=""):
    options = vars(options) if isinstance(options, Namespace) else options
    for name, value in options.items():
        if name in MAY_DIFFER:
            continue
        if isinstance(value, (Mapping, Namespace)):
            yield from _flat(value, f"{prefix}{name}.")
        elif value is None or isinstance(value, (bool, int, float, str, list, tuple)):
            # Objects of other types are skipped, because their text may contain a memory address.
            yield f"{prefix}{name}", str(value)


def refuse_other_flags(ranks: list[dict[str, str]]) -> None:
    """Refuse options that differ from those of rank 0.

    Args:
        ranks: for each rank, the output of ``options_of``.

    Raises:
        InputError: the message names rank, flag and both values.
    """
    first = ranks[0]
    for rank, options in enumerate(ranks):
        for name in first | options:
            value, usual = options.get(name, "missing"), first.get(name, "missing")
            if value != usual:
                raise InputError(
                    f"rank {rank}: {_flag(name)} is {value}, but {usual} on rank 0; all ranks need the same flags"
                )


def _flag(name):
    """Return the flag of an option: ``optimization.lr`` -> ``--lr``, ``model._name`` -> ``--arch``."""
    if name in _software():
        return name
    group, _, last = name.rpartition(".")
    return flag_of(_FLAGS_OF_GROUPS.get(group, group) if last == "_name" else last)
