"""Start ranks on CPUs, from one fairseq command or under torchrun, and forward the errors of child processes.

fairseq starts one process per CUDA device. Without a device, ``--distributed-world-size 2`` starts no process at all and ends with status
0. Under torchrun every process trains its own model, or fails when it divides by the number of devices, which is 0.
``start_processes_on_cpus`` repairs this. With a CUDA device and without ``--cpu``, fairseq starts its processes as before. On CPUs and on
GPUs, an ``InputError`` of a child process ends the command with one line instead of the child's traceback.
"""

import functools
import importlib.util
import multiprocessing
import os
import socket
from contextlib import contextmanager

import torch
import torch.distributed as dist
from fairseq.distributed import utils as distributed_utils
from torch.multiprocessing.spawn import ProcessException, ProcessRaisedException

from ..errors import InputError
from . import launch_variables
from .error_report import find_input_error
from .repair import repair


@repair("cpu-processes")
def start_processes_on_cpus():
    """Start several ranks on CPUs, and report an ``InputError`` of a rank in one line.

    This function is empty, and only registers the repair. The repair itself is ``call_main``, which ``trainer.preflight`` calls.
    """


def call_main(original, cfg, main, **kwargs):
    """Run a command on the CPU, in this process or in child processes. fairseq's own ``call_main`` handles all other cases."""
    if uses_cpu(cfg):
        complete_flags(cfg.distributed_training, training=is_training(main))
        if cfg.distributed_training.distributed_init_method and not cfg.distributed_training.distributed_no_spawn:
            return start_processes(cfg, main, kwargs)
        original(cfg, main, **kwargs)
        return leave_group()
    launch_variables.check_for_fairseq(cfg.distributed_training)
    with forwarding_input_errors(main) as main:
        return original(cfg, main, **kwargs)


def uses_cpu(cfg):
    """Whether the run computes on CPUs, because of ``--cpu`` or because there is no CUDA device."""
    if cfg.common.tpu or cfg.distributed_training.pipeline_model_parallel:
        return False
    return cfg.common.cpu or not torch.cuda.is_available()


def is_first_process(cfg):
    """Whether this process is rank 0 of the run, according to the flags and torchrun's environment variables."""
    _, rank = launch_variables.torchrun() or (1, 0)
    return not (cfg.distributed_training.distributed_rank or rank)


def is_first_on_host(flags):
    """Whether this process has local rank 0, according to the environment variables of torchrun and Slurm."""
    return not launch_variables.local_rank(flags)


def is_training(main):
    """Whether ``main`` belongs to fairseq-train, ``python -m fairseq_cli.train`` or fairseq-hydra-train."""
    while isinstance(main, functools.partial):  # wrapped by this package
        main = main.args[0]
    source = getattr(getattr(main, "__code__", None), "co_filename", None)
    return source in {importlib.util.find_spec(f"fairseq_cli.{name}").origin for name in ("train", "hydra_train")}


def complete_flags(flags, training):
    """Complete the distributed flags of a CPU run in place: number of ranks, rendezvous address and backend.

    Args:
        flags: fairseq's ``DistributedTrainingConfig``.
        training: whether the command trains. Other commands ignore torchrun.

    Raises:
        InputError: the flags do not determine how to start the processes.
    """
    if flags.distributed_world_size < 1:
        raise InputError(f"--distributed-world-size {flags.distributed_world_size}: must be at least 1")
    if flags.distributed_init_method is None:
        if training and launch_variables.torchrun():
            follow_torchrun(flags)
        elif flags.distributed_world_size > 1:
            meet_on_this_machine(flags)
    elif flags.distributed_init_method == "env://" and not {"MASTER_ADDR", "MASTER_PORT"} <= set(os.environ):
        raise InputError(
            "--distributed-init-method env://: set MASTER_ADDR and MASTER_PORT, or start the command with torchrun"
        )
    elif flags.distributed_init_method == "env://":
        launch_variables.check_meeting_point()
    if flags.distributed_init_method is not None and flags.distributed_backend == "nccl":
        flags.distributed_backend = "gloo"


def follow_torchrun(flags):
    """Set world size and rank from torchrun's environment variables, so that all processes of torchrun train one model."""
    (started, rank), given = launch_variables.torchrun(), flags.distributed_world_size
    if given not in (1, started, torch.cuda.device_count()):
        raise InputError(
            f"--distributed-world-size {given}: torchrun started {started} processes (WORLD_SIZE); remove the flag"
        )
    flags.distributed_world_size = started
    if started > 1:
        flags.distributed_init_method = "env://"
        flags.distributed_rank = rank
        flags.distributed_no_spawn = True


def meet_on_this_machine(flags):
    """Set the rendezvous address to a port of this machine."""
    if flags.distributed_no_spawn and flags.distributed_port <= 0:
        raise InputError(
            f"--distributed-no-spawn: with --distributed-world-size {flags.distributed_world_size} every process needs"
            " --distributed-init-method tcp://HOST:PORT and its --distributed-rank"
        )
    tasks = launch_variables.number("SLURM_NTASKS", 1) if {"SLURM_NTASKS", "SLURM_PROCID"} <= set(os.environ) else 1
    if tasks > 1 and not flags.distributed_no_spawn:
        raise InputError(
            f"--distributed-world-size {flags.distributed_world_size}: srun started {tasks} tasks;"
            " on CPUs give every task --distributed-init-method tcp://HOST:PORT --distributed-no-spawn"
            " --distributed-rank $SLURM_PROCID"
        )
    port = flags.distributed_port if flags.distributed_port > 0 else free_port()
    flags.distributed_init_method = f"tcp://127.0.0.1:{port}"
    flags.nprocs_per_node = flags.distributed_world_size


def leave_group():
    """Destroy the process group and its gloo threads. Call this only after success, when no rank waits for another rank.

    fairseq leaves the group open. A process that exits while a gloo thread holds a tensor may abort with "terminate called without an
    active exception". In about one of ten runs, the command then fails after its work is done.
    """
    if dist.is_initialized():
        dist.destroy_process_group()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start_processes(cfg, main, kwargs):
    """Start the processes of this machine, wait for them, and fail when one fails.

    Raises:
        InputError: a process raised an ``InputError``. If several did, the message that arrived first is used.
        RuntimeError: a process died. The message names its rank.
    """
    flags = cfg.distributed_training
    world, first = flags.distributed_world_size, flags.distributed_rank or 0
    count = min(world, flags.nprocs_per_node) if flags.nprocs_per_node > 1 else world
    if first < 0 or first + count > world:
        raise InputError(
            f"--distributed-rank {first}: this command would start {count} processes, beginning with this rank, but "
            f"--distributed-world-size is {world}; add --distributed-no-spawn to start only this rank, or give --nprocs-per-node"
        )
    flags.distributed_rank = None  # each process sets its own rank
    with forwarding_input_errors(main, first) as main:
        job = (main, cfg, dict(kwargs, start_rank=first), count)
        torch.multiprocessing.spawn(run_process, args=job, nprocs=count, join=True)


@contextmanager
def forwarding_input_errors(main, first=None):
    """Yield a wrapper of ``main`` for child processes, and re-raise an ``InputError`` of a child in this process.

    A child that unpickles the wrapper imports the plugin, so all repairs are applied before the child starts its work.

    Args:
        main: the function that the child processes run.
        first: the first rank that is started here, if known.

    Raises:
        InputError, RuntimeError: as in ``start_processes``. If ``first`` is None, the death of a child raises torch's ``ProcessException``.
    """
    errors = torch.multiprocessing.get_context("spawn").SimpleQueue()
    try:
        yield functools.partial(send_input_error, main, errors)
    except ProcessException as error:
        if not errors.empty():
            raise InputError(errors.get()) from None
        if first is None:
            raise
        raise RuntimeError(describe_exit(first + error.error_index, error)) from None


def send_input_error(main, errors, cfg, **kwargs):
    """Run ``main`` in a child process. Send the message of an ``InputError`` to the parent process."""
    if multiprocessing.parent_process() is not None:
        start_workers_as_in_one_process()
    try:
        return main(cfg, **kwargs)
    except Exception as error:
        mistake = find_input_error(error)
        if mistake is not None:
            errors.put(str(mistake))
        raise


def start_workers_as_in_one_process():
    """Let a spawned rank start the workers of its data loaders by fork, as a command with one rank does.

    By default, a spawned process also starts its own children by spawn. Each worker of each epoch would import torch and fairseq again,
    which takes seconds of CPU time, and would unpickle its own copy of the data. fairseq.pdb creates a lock when it is imported. If a
    spawned process creates a lock before its own work begins, Python does not remove the lock's name. At the end of the training, Python
    would then warn of leaked semaphores.
    """
    multiprocessing.set_start_method(None, force=True)


def describe_exit(rank, error):
    """Return a message about a rank that died. The message contains the Python traceback, the signal or the exit status."""
    if isinstance(error, ProcessRaisedException):
        return f"the process of rank {rank} failed:\n{error.msg.split('error:', 1)[-1].strip()}"
    cause = f"signal {error.signal_name}" if error.signal_name else f"exit status {error.exit_code}"
    return f"the process of rank {rank} ended with {cause}"


def run_process(index, main, cfg, kwargs, count):
    """Entry point of one of ``count`` child processes."""
    if "OMP_NUM_THREADS" not in os.environ:
        # On a shared machine, this process may use only some of the cores.
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        torch.set_num_threads(max(1, cores // count))
    distributed_utils.distributed_main(index, main, cfg, kwargs)
    leave_group()
