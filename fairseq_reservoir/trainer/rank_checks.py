"""Check that the ranks of a run are connected, load the same checkpoint and have the same frozen tensors.

Each rank draws its frozen tensors from the seed and the tensors' names, so all ranks should have equal tensors. They differ if the flags or
the versions of the package differ between ranks, or after a memory error. A difference would persist, because frozen tensors have no
gradient and ``legacy_ddp`` does not broadcast them.
"""

from collections import Counter

import torch
import torch.distributed as dist
from fairseq.file_io import PathManager

from ..errors import InputError, flag_of
from ..fairseq_repairs import launch_variables
from ..random_tensors import digest
from .frozen_guard import freezes
from .rank_data import compare_data
from .rank_flags import gather


def check_processes(trainer) -> None:
    """Compare the ranks when the trainer starts, before it wraps the model for distributed training."""
    if not dist.is_initialized():
        refuse_lone_ranks()
    elif trainer.data_parallel_world_size > 1:
        # Compare data first, because the shapes of some tensors depend on a dictionary.
        compare_data(trainer.task, trainer.data_parallel_process_group)
        schedule = trainer.freeze_schedule
        compare(trainer.get_model(), trainer.data_parallel_process_group, schedule.frozen(0) if schedule else ())


def agree_on_checkpoint(trainer, filename: str, options: dict) -> None:
    """Refuse ranks that disagree on which checkpoint to load, on whether it exists, or on the options of ``load_checkpoint``.

    fairseq broadcasts rank 0's checkpoint to the ranks that have found a file.
    """
    if dist.is_initialized() and trainer.data_parallel_world_size > 1:
        # With a suffix, each rank stores its part of the checkpoint in its own file.
        suffix = trainer.checkpoint_suffix
        name = filename.removesuffix(f"{suffix}.pt") if suffix else filename
        arguments = {"filename": name, **options}
        refuse_other_files(gather((arguments, PathManager.isfile(filename)), trainer.data_parallel_process_group))


def refuse_other_files(loading: list[tuple[dict, bool]]) -> None:
    """Refuse ranks that disagree on which file to load, on whether it exists, or on how to load it.

    If only some ranks have the file, these ranks would wait for the others forever. A rank without ``checkpoint_last.pt`` might start from
    ``--finetune-from-model`` at update 0.

    Args:
        loading: for each rank, the arguments of the trainer's ``load_checkpoint`` by name, and whether the file exists.

    Raises:
        InputError: the message names a rank and the file or argument.
    """
    first, found = loading[0][0], [there for _, there in loading]
    for rank, (arguments, _) in enumerate(loading):
        name = next((name for name in first if arguments[name] != first[name]), None)
        if name == "filename":
            raise InputError(
                f"rank {rank}: would load {arguments[name]}, but rank 0 would load {first[name]}; "
                "all ranks need the same flags, and a --save-dir that all hosts share"
            )
        if name:
            raise InputError(
                f"rank {rank}: {flag_of(name)} is {arguments[name]}, but {first[name]} on rank 0; all ranks need the same flags"
            )
    if len(set(found)) > 1:
        raise InputError(
            f"rank {found.index(False)}: {first['filename']} does not exist on this rank, but exists on rank {found.index(True)}; "
            "all ranks need a --save-dir that all hosts share"
        )


def refuse_lone_ranks() -> None:
    """Refuse ranks that torchrun started but fairseq did not connect.

    Raises:
        InputError: the ranks are not connected. Each would train its own model and overwrite the checkpoints of the others.
    """
    world_size, _ = launch_variables.torchrun() or (1, 0)
    if world_size > 1:
        raise InputError(
            f"torchrun started {world_size} processes (WORLD_SIZE), but fairseq has not connected them; give "
            "--distributed-world-size; with fairseq-hydra-train, also set hydra.callbacks as in config/translation.yaml"
        )


def hashes(model: torch.nn.Module, scheduled=()) -> dict[str, str]:
    """Return the SHA-256 of every frozen or ``scheduled`` parameter and of every buffer, by name."""
    frozen = {
        name: parameter
        for name, parameter in model.named_parameters()
        if not parameter.requires_grad or name in scheduled
    }
    return {name: digest.of_tensor(tensor) for name, tensor in (frozen | dict(model.named_buffers())).items()}


def compare(model: torch.nn.Module, group, scheduled=()) -> None:
    """Compare the hashes of frozen tensors on all ranks of a process group. Every rank must call this.

    Args:
        model: the model with the tensors.
        group: the process group.
        scheduled: names of parameters that the optimizer freezes at update 0.

    Raises:
        InputError: a tensor of one rank differs from the tensor of most ranks; the message names the rank and the tensor.
    """
    everyone = gather(hashes(model, scheduled), group)
    for name in dict.fromkeys(name for own in everyone for name in own):
        found = [own.get(name) for own in everyone]
        usual = Counter(found).most_common(1)[0][0]
        for rank, value in enumerate(found):
            if value != usual:
                how = (
                    "differs from" if value and usual else "is missing, but exists on" if usual else "is not frozen on"
                )
                raise InputError(
                    f"rank {rank}: the frozen tensor {name} {how} the other ranks; all ranks need the same flags, package and files"
                )


def refuse_sharding(cfg) -> None:
    """Refuse ``--ddp-backend fully_sharded`` for models with frozen or masked tensors.

    FSDP joins all tensors of a layer into one trained tensor, so frozen tensors would be trained. It also removes the parameters from
    which masked weights are computed.
    """
    if cfg.distributed_training.ddp_backend != "fully_sharded":
        return
    if freezes(cfg.model):
        raise InputError(
            "--ddp-backend fully_sharded: would train frozen tensors, because it joins frozen and trained tensors into one; "
            "use pytorch_ddp or legacy_ddp"
        )
