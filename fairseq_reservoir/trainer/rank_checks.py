"""Checks between the processes of one run: that there is one run, and that all of them hold the same frozen tensors.

Frozen tensors follow from the seed and their names, so they are equal by construction; but no gradient and with ``legacy_ddp`` no
broadcast would ever make them so, and a host with another version, flags or memory errors would train against the others unseen.
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
    """Compare the ranks when the trainer starts, before it wraps the model for several processes."""
    if not dist.is_initialized():
        refuse_lone_ranks()
    elif trainer.data_parallel_world_size > 1:
        # Before tensors, because the shapes of some depend on a dictionary.
        compare_data(trainer.task, trainer.data_parallel_process_group)
        schedule = trainer.freeze_schedule
        compare(trainer.get_model(), trainer.data_parallel_process_group, schedule.frozen(0) if schedule else ())


def agree_on_checkpoint(trainer, filename: str, options: dict) -> None:
    """Refuse ranks that disagree on the checkpoint to load, whether it exists, or the options of ``load_checkpoint``.

    fairseq broadcasts rank 0's checkpoint to the ranks that have found a file.
    """
    if dist.is_initialized() and trainer.data_parallel_world_size > 1:
        # With a suffix every rank has a part of the checkpoint in a file of its own.
        suffix = trainer.checkpoint_suffix
        name = filename.removesuffix(f"{suffix}.pt") if suffix else filename
        asked = {"filename": name, **options}
        refuse_other_files(gather((asked, PathManager.isfile(filename)), trainer.data_parallel_process_group))


def refuse_other_files(loading: list[tuple[dict, bool]]) -> None:
    """Refuses processes that would not go on from the same checkpoint in the same way.

    Where only some have the file, they would wait for each other; and one that has not found ``checkpoint_last.pt`` may start from
    ``--finetune-from-model``, without the optimizer's state and at update 0.

    Args:
        loading: of every process, the arguments of the trainer's ``load_checkpoint`` by name and whether the file is there.

    Raises:
        InputError: the message names a process and what it would load.
    """
    first, found = loading[0][0], [there for _, there in loading]
    for rank, (asked, _) in enumerate(loading):
        name = next((name for name in first if asked[name] != first[name]), None)
        if name == "filename":
            raise InputError(
                f"rank {rank}: would load {asked[name]}, but rank 0 {first[name]}; "
                "all need the same flags, and --save-dir has to be a folder that all hosts see"
            )
        if name:
            raise InputError(
                f"rank {rank}: {flag_of(name)} is {asked[name]}, but {first[name]} on rank 0; all need the same flags"
            )
    if len(set(found)) > 1:
        raise InputError(
            f"rank {found.index(False)}: there is no {first['filename']} here, but rank {found.index(True)} has it; "
            "--save-dir has to be a folder that all hosts see"
        )


def refuse_lone_ranks() -> None:
    """Refuses to be one of several processes that torchrun started but that fairseq did not connect.

    Raises:
        InputError: each would train a model of its own and overwrite the others' checkpoints.
    """
    world_size, _ = launch_variables.torchrun() or (1, 0)
    if world_size > 1:
        raise InputError(
            f"torchrun started {world_size} processes (WORLD_SIZE), but fairseq connects none of them: give "
            "--distributed-world-size, and fairseq-hydra-train the hydra.callbacks of config/translation.yaml"
        )


def hashes(model: torch.nn.Module, scheduled=()) -> dict[str, str]:
    """The SHA-256 of every frozen parameter, those ``scheduled`` to be so included, and of every buffer, by name."""
    frozen = {
        name: parameter
        for name, parameter in model.named_parameters()
        if not parameter.requires_grad or name in scheduled
    }
    return {name: digest.of_tensor(tensor) for name, tensor in (frozen | dict(model.named_buffers())).items()}


def compare(model: torch.nn.Module, group, scheduled=()) -> None:
    """Exchanges hashes with the other processes of ``group``; every one of them must call this.

    Args:
        model: whose tensors are compared.
        group: of processes.
        scheduled: names of parameters that the optimizer freezes at once.

    Raises:
        InputError: a tensor differs from that of most processes, or of the first; the message names process and tensor.
    """
    everyone = gather(hashes(model, scheduled), group)
    for name in dict.fromkeys(name for own in everyone for name in own):
        found = [own.get(name) for own in everyone]
        usual = Counter(found).most_common(1)[0][0]
        for rank, value in enumerate(found):
            if value != usual:
                how = "differs from" if value and usual else "is missing, unlike in" if usual else "is not frozen in"
                raise InputError(
                    f"rank {rank}: the frozen tensor {name} {how} the other processes; all need the same flags, package and files"
                )


def refuse_sharding(cfg) -> None:
    """Refuses ``--ddp-backend fully_sharded`` for a model of which something is frozen or masked.

    FSDP flattens the tensors of a layer into one, which is trained as a whole, and gives away those that a mask would be applied to.

    Raises:
        InputError: one line with what to use.
    """
    if cfg.distributed_training.ddp_backend != "fully_sharded":
        return
    if freezes(cfg.model):
        raise InputError(
            "--ddp-backend fully_sharded: it flattens frozen and trained tensors into one and would train both; "
            "use pytorch_ddp or legacy_ddp"
        )
