"""Recipes for several processes: their commands parse, and the one for CPUs trains."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from fairseq import options
from fairseq.distributed import utils as distributed_utils
from torch.distributed.run import get_args_parser

import fairseq_reservoir
from tests.support.commands import load

FOLDER = Path(fairseq_reservoir.__file__).parents[1] / "examples" / "distributed"
HOSTS = {"FIRST": "host0", "HOSTS": "3", "RANK_OF_HOST": "2", "GPUS_PER_HOST": "4", "PORT": "12345"}


def bash(recipe, *arguments, **environment):
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", **environment}
    return subprocess.run(
        ["bash", FOLDER / recipe, *arguments], cwd=FOLDER.parents[1], env=environment, capture_output=True, text=True
    )


def dry_run(recipe, **environment):
    ended = bash(recipe, "--max-update", "7", DATA="data bin", DRY_RUN="1", **environment)
    assert ended.returncode == 0, ended.stderr
    (line,) = ended.stdout.splitlines()
    return shlex.split(line)


def flags_of(words):
    """Options of a command line in fairseq-train. The last flags of a recipe are the user's."""
    args = options.parse_args_and_arch(options.get_training_parser(), words)
    assert (args.data, args.reservoir_encoder, args.max_update) == ("data bin", "LFLFL", 7)
    return args


def test_one_host():
    command, *words = dry_run("one_host.sh", GPUS="0,1")
    assert command == "fairseq-train" and flags_of(words).distributed_init_method is None


def test_several_hosts_under_torchrun():
    command, *words = dry_run("several_hosts.sh", **HOSTS)
    torchrun = get_args_parser().parse_args(words)
    assert command == "torchrun" and torchrun.module and torchrun.training_script == "fairseq_cli.train"
    assert (torchrun.nnodes, torchrun.node_rank, torchrun.nproc_per_node) == ("3", 2, "4")
    assert (torchrun.master_addr, torchrun.master_port) == ("host0", 12345)
    assert flags_of(torchrun.training_script_args).distributed_world_size == 12


def test_several_hosts_without_torchrun():
    command, *words = dry_run("several_hosts_without_torchrun.sh", **HOSTS)
    args = flags_of(words)
    assert command == "fairseq-train" and args.distributed_init_method == "tcp://host0:12345"
    assert (args.distributed_world_size, args.distributed_rank) == (12, 8)  # hosts 0 and 1 have ranks 0 to 7


def test_slurm(monkeypatch, tmp_path):
    """fairseq's settings in the environment in which srun starts the second of two tasks, with a fake scontrol."""
    environment = {"SLURM_JOB_ID": "71", "SLURM_NNODES": "2", "SLURM_GPUS_ON_NODE": "4"}
    srun, *words = dry_run("slurm.sbatch", **environment)
    assert srun == "srun" and words[1] == "fairseq-train"
    flags = flags_of(words[2:])
    assert (flags.distributed_world_size, flags.distributed_port) == (8, 20071)
    (tmp_path / "scontrol").write_text("#!/bin/sh\necho host0\necho host1\n")
    (tmp_path / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    for name, value in {
        **environment,
        "SLURM_JOB_NODELIST": "host[0-1]",
        "SLURM_NTASKS_PER_NODE": "1",
        "SLURM_NODEID": "1",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 4)
    flags.pipeline_model_parallel = False
    assert distributed_utils._infer_slurm_init(flags, None)
    assert (flags.distributed_init_method, flags.distributed_rank, flags.distributed_world_size) == (
        "tcp://host0:20071",
        4,
        8,
    )


@pytest.mark.parametrize("recipe", ["several_hosts.sh", "several_hosts_without_torchrun.sh", "two_cpus.sh"])
def test_missing_variables_are_named(recipe):
    ended = bash(recipe, DRY_RUN="1", DATA="" if recipe == "two_cpus.sh" else "data")
    name = "DATA" if recipe == "two_cpus.sh" else "FIRST"
    assert (ended.returncode, ended.stdout) == (2, "") and ended.stderr.startswith(f"{recipe}: {name} is not set")


@pytest.mark.slow  # for the same start, flags and result see tests/integration/test_processes.py
def test_two_cpus(toy_data, tmp_path):
    flags = "--max-update 2 --max-tokens 400 --num-workers 0 --arch reservoir_transformer_tiny --reservoir-encoder LF".split()
    ended = bash("two_cpus.sh", *flags, DATA=str(toy_data), SAVE_DIR=str(tmp_path))
    assert ended.returncode == 0, ended.stderr
    checkpoint = load(tmp_path)
    assert checkpoint["optimizer_history"][-1]["num_updates"] == 2
    assert checkpoint["cfg"]["distributed_training"]["distributed_world_size"] == 2
