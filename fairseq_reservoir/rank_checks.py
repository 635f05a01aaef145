"""What has to hold between the processes of one run: that there is one run, and that what nobody trains is the same in all of them.

Frozen tensors follow from the seed and their names, so they are equal by construction; but no gradient and with ``legacy_ddp`` no
broadcast would ever make them so, and a host with another version, flags or memory errors would train against the others unseen.
"""

import functools
import hashlib
import os
from collections import Counter

import torch
import torch.distributed as dist
from fairseq.file_io import PathManager

from .cpu_launch import TORCHRUN_VARIABLES
from .errors import InputError
from .wrap_trainer import wrap_trainer


@functools.cache
def install() -> None:
    """Checks the processes when fairseq's trainer starts, before it wraps the model for several of them; once."""
    wrap_trainer(__init__=_check, load_checkpoint=_agree)


def _check(init, trainer, *args, **kwargs):
    init(trainer, *args, **kwargs)
    if not dist.is_initialized():
        refuse_lone_ranks()
    elif trainer.data_parallel_world_size > 1:
        compare(trainer.get_model(), trainer.data_parallel_process_group)


def _agree(load_checkpoint, trainer, filename, *args, **kwargs):
    """Rank 0 sends the checkpoint to those that have found the file; where only some have, they would wait for each other."""
    if dist.is_initialized() and trainer.data_parallel_world_size > 1:
        found = _gather(PathManager.isfile(filename), trainer.data_parallel_process_group)
        if len(set(found)) > 1:
            raise InputError(
                f"rank {found.index(False)}: there is no {filename} here, but rank {found.index(True)} has it; "
                "--save-dir has to be a folder that all hosts see"
            )
    return load_checkpoint(trainer, filename, *args, **kwargs)


def refuse_lone_ranks() -> None:
    """Refuses to be one of several processes that torchrun started but that fairseq did not connect.

    Raises:
        InputError: each would train a model of its own and overwrite the others' checkpoints.
    """
    if all(name in os.environ for name in TORCHRUN_VARIABLES) and int(os.environ["WORLD_SIZE"]) > 1:
        raise InputError(
            f"torchrun started {os.environ['WORLD_SIZE']} processes (WORLD_SIZE), but fairseq connects none of them: give "
            "--distributed-world-size, and fairseq-hydra-train the hydra.callbacks of config/translation.yaml"
        )


def hashes(model: torch.nn.Module) -> dict[str, str]:
    """The SHA-256 of every frozen parameter and every buffer, such as shared random weights, by name."""
    frozen = {name: parameter for name, parameter in model.named_parameters() if not parameter.requires_grad}
    return {name: _hash(tensor) for name, tensor in (frozen | dict(model.named_buffers())).items()}


def _hash(tensor):
    data = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy()
    return hashlib.sha256(data).hexdigest()


def compare(model: torch.nn.Module, group) -> None:
    """Exchanges hashes with the other processes of ``group``; every one of them must call this.

    Raises:
        InputError: a tensor differs from that of most processes, or of the first; the message names process and tensor.
    """
    everyone = _gather(hashes(model), group)
    for name in dict.fromkeys(name for own in everyone for name in own):
        found = [own.get(name) for own in everyone]
        usual = Counter(found).most_common(1)[0][0]
        for rank, value in enumerate(found):
            if value != usual:
                how = "differs from" if value and usual else "is missing, unlike in" if usual else "is not frozen in"
                raise InputError(
                    f"rank {rank}: the frozen tensor {name} {how} the other processes; all need the same flags, package and files"
                )


def _gather(value, group):
    """What every process of ``group`` gives, in their order."""
    values = [None] * dist.get_world_size(group)
    dist.all_gather_object(values, value, group=group)
    return values


def refuse_sharding(cfg) -> None:
    """Refuses ``--ddp-backend fully_sharded`` for a model of which something is frozen or masked.

    FSDP flattens the tensors of a layer into one, which is trained as a whole, and gives away those that a mask would be applied to.

    Raises:
        InputError: one line with what to use.
    """
    if cfg.distributed_training.ddp_backend != "fully_sharded":
        return
    model = cfg.model
    plans = "".join(getattr(model, f"reservoir_{stack}", None) or "" for stack in ("encoder", "decoder"))
    given = (getattr(model, name, None) for name in ("freeze", "freeze_except", "reservoir_count", "reservoir_decoder_count", "mask_keep_ratio"))
    if set(plans) & set("TFGCS") or any(given):
        raise InputError(
            "--ddp-backend fully_sharded: it flattens frozen and trained tensors into one and would train both; "
            "use pytorch_ddp or legacy_ddp"
        )
