"""Several CPU processes train one model, started by one command or by torchrun. Impossible settings give clear errors."""

import inspect
import multiprocessing
import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from fairseq.dataclass.configs import FairseqConfig
from fairseq.distributed import utils as distributed_utils
from omegaconf import OmegaConf
from torch.multiprocessing.spawn import ProcessExitedException, ProcessRaisedException

import fairseq_reservoir
from fairseq_reservoir.errors import InputError
from fairseq_reservoir.fairseq_repairs import cpu_launch, launch_variables
from tests.support import warm_start
from tests.support.warm_start import run_command

PLUGIN = ["--user-dir", str(Path(fairseq_reservoir.__file__).parent)]
BIN = Path(sys.executable).parent

without_cuda = pytest.mark.skipif(torch.cuda.is_available(), reason="plain fairseq uses the CUDA device")


def start(*words):
    """Run a command of this environment and wait for its end."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, env=environment)


def weights(save_dir):
    return torch.load(save_dir / "checkpoint_last.pt")["model"]


@pytest.fixture
def expected_weights(make_corpus, run_fairseq, tiny_training, tmp_path):
    """Train in one process on the batches of two ranks. Return (data, weights)."""
    data = make_corpus(train=32)
    run_fairseq("train", data, *tiny_training, "--update-freq", 2, "--save-dir", tmp_path / "one")
    return data, weights(tmp_path / "one")


def assert_one_model(save_dir, expected):
    trained = weights(save_dir)
    assert trained.keys() == expected.keys()
    for name, weight in expected.items():
        # Adam turns the sign of a gradient into a step, so a rounding error is visible in a weight with nearly zero gradient.
        torch.testing.assert_close(trained[name], weight, rtol=0, atol=1e-5)


# By default test_two_processes.py does the same with forks of a warm server, which pickle and import as spawned processes do.
@pytest.mark.slow
@without_cuda
def test_two_processes_from_one_command(expected_weights, tiny_training, tmp_path):
    data, expected = expected_weights
    flags = [*tiny_training, "--distributed-world-size", 2, "--save-dir", tmp_path / "two"]
    command = [word for word in flags if word != "--cpu"]  # a missing CUDA device suffices
    result = start(BIN / "fairseq-train", data, *command, *PLUGIN)
    assert result.returncode == 0, result.stderr
    assert_one_model(tmp_path / "two", expected)


def test_two_processes_with_the_variables_of_torchrun(expected_weights, tiny_training, tmp_path):
    data, expected = expected_weights
    flags = [*tiny_training, "--ddp-backend", "legacy_ddp", "--save-dir", tmp_path / "two"]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}

    def run(rank):
        variables = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", **meeting}
        given = os.environ | variables | {"OMP_NUM_THREADS": "1", "TORCHELASTIC_RUN_ID": "none"}
        return run_command("python", "-m", "fairseq_cli.train", data, *flags, *PLUGIN, env=given)

    with ThreadPoolExecutor() as threads:
        for result in threads.map(run, ["0", "1"]):
            assert result.returncode == 0, result.stderr
    assert_one_model(tmp_path / "two", expected)


@pytest.mark.slow
def test_two_processes_under_torchrun(expected_weights, tiny_training, tmp_path):
    data, expected = expected_weights
    torchrun = [BIN / "torchrun", "--nproc-per-node", 2, "-m", "fairseq_cli.train"]
    flags = [*tiny_training, "--ddp-backend", "legacy_ddp", "--save-dir", tmp_path / "two"]
    result = start(*torchrun, data, *flags, *PLUGIN)
    assert result.returncode == 0, result.stderr
    assert_one_model(tmp_path / "two", expected)


@without_cuda
def test_plain_fairseq_runs_nothing():
    cfg, reached = config(), []
    cfg.distributed_training = flags_of(distributed_init_method="tcp://127.0.0.1:29999")
    inspect.unwrap(distributed_utils.call_main)(cfg, reached.append)  # no error, no process
    assert reached == []


@without_cuda
def test_plain_fairseq_divides_by_zero_under_torchrun(monkeypatch):
    for name, value in {"MASTER_ADDR": "localhost", "MASTER_PORT": "1", "WORLD_SIZE": "2", "RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    flags = flags_of(distributed_world_size=2)
    with pytest.raises(ZeroDivisionError):
        distributed_utils.infer_init_method(flags)
    flags = flags_of(distributed_world_size=1)  # fairseq's default without a CUDA device: ranks do not communicate
    distributed_utils.infer_init_method(flags)
    assert (flags.distributed_init_method, flags.distributed_world_size) == (None, 1)


def test_a_mistake_is_one_line_and_status_2(make_corpus, tiny_training, tmp_path):
    result = run_command("fairseq-train", tmp_path / "gone", *tiny_training, *PLUGIN)
    expected = f"DATA: {tmp_path}/gone is not a folder; create it with fairseq-preprocess --destdir"
    assert (result.returncode, result.stderr) == (2, f"fairseq-train: error: {expected}\n")


def test_the_group_is_left_before_the_process_ends(tmp_path):
    cfg = config()
    cfg.common.cpu = True
    meeting = f"file://{tmp_path}/meeting"
    cfg.distributed_training = flags_of(
        distributed_world_size=1, distributed_init_method=meeting, distributed_no_spawn=True, distributed_backend="gloo"
    )

    def main(cfg):
        assert dist.is_initialized()

    inspect.unwrap(distributed_utils.call_main)(cfg, main)
    assert dist.is_initialized()  # plain fairseq leaves gloo's threads running
    distributed_utils.call_main(cfg, main)
    assert not dist.is_initialized()


# The processes import their functions from a module with this text.
MAINS = """
import os, signal, time
from fairseq_reservoir.errors import InputError

def main(cfg):
    rank = cfg.distributed_training.distributed_rank
    end = os.environ["HOW_IT_ENDS"]
    if rank == 1 and end == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    if end == "killed":
        time.sleep(60)  # until it is ended together with rank 1
    if end == "mistake":
        try:
            raise InputError("--flag: no")
        except InputError as error:
            raise KeyError("inner") from error
"""


@pytest.fixture
def said(tmp_path):
    """Files with stdout and stderr of the processes of ``run_two``."""
    files = tmp_path / "out", tmp_path / "err"
    for file in files:
        file.touch()
    return files


@pytest.fixture
def run_two(no_launcher, tmp_path, said, monkeypatch):
    """Return a function that runs two processes to a given end by fairseq's ``call_main``."""
    (tmp_path / "mains_of_a_test.py").write_text(MAINS)
    monkeypatch.syspath_prepend(tmp_path)
    from mains_of_a_test import main

    def run(end, cpu=True, **flags):
        monkeypatch.setenv("HOW_IT_ENDS", end)
        cfg = config()
        cfg.common.cpu, cfg.distributed_training = cpu, flags_of(**flags)
        surroundings = (list(map(str, said)), str(tmp_path), dict(os.environ))
        monkeypatch.setattr(torch.multiprocessing, "spawn", partial(warm_start.spawn, surroundings=surroundings))
        distributed_utils.call_main(cfg, main)

    yield run
    del sys.modules["mains_of_a_test"]


def test_a_dead_process_fails_the_command(run_two):
    with pytest.raises(RuntimeError, match="^the process of rank 1 ended with signal SIGKILL$"):
        run_two("killed")


def test_a_mistake_found_by_a_process(run_two, said):
    with pytest.raises(InputError, match="^--flag: no$"):
        run_two("mistake")
    assert "Traceback" not in said[1].read_text()


@without_cuda
def test_a_mistake_found_by_a_process_that_fairseq_starts_for_a_gpu(run_two, said, monkeypatch):
    """fairseq itself would show a traceback. The processes find no GPU; one error is enough."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    meeting = f"tcp://127.0.0.1:{cpu_launch.free_port()}"
    with pytest.raises(InputError, match="^--flag: no$"):
        run_two(
            "mistake", cpu=False, distributed_world_size=1, distributed_init_method=meeting, distributed_backend="gloo"
        )
    assert "Traceback" not in said[1].read_text()


def as_a_rank(results):
    """Report how a spawned process starts its children, and how a rank in it starts the workers of its data loaders."""
    results.put(multiprocessing.get_start_method())
    cpu_launch.send_input_error(lambda cfg: results.put(multiprocessing.get_start_method()), None, None)


def test_a_spawned_rank_forks_its_workers():
    spawning = multiprocessing.get_context("spawn")
    results = spawning.SimpleQueue()
    rank = spawning.Process(target=as_a_rank, args=(results,))
    rank.start()
    rank.join()
    assert rank.exitcode == 0
    assert [results.get(), results.get()] == ["spawn", "fork"]


def test_obituaries():
    left = ProcessExitedException("", error_index=1, error_pid=1, exit_code=7)
    assert cpu_launch.describe_exit(3, left) == "the process of rank 3 ended with exit status 7"
    message = "\n\n-- Process 1 terminated with the following error:\nTraceback ...\nKeyError: error: 'x'\n"
    failed = ProcessRaisedException(message, error_index=1, error_pid=1)
    assert cpu_launch.describe_exit(3, failed) == "the process of rank 3 failed:\nTraceback ...\nKeyError: error: 'x'"


def config():
    """fairseq's default flags in the form that its commands pass to ``call_main``."""
    flags = OmegaConf.to_container(OmegaConf.structured(FairseqConfig(model=None)), resolve=True, enum_to_str=True)
    return OmegaConf.create(flags)


def flags_of(**changes):
    flags = config().distributed_training
    flags.update({"distributed_world_size": 2, "nprocs_per_node": 1, **changes})
    return flags


def settled(training=True, **changes):
    flags = flags_of(**changes)
    cpu_launch.complete_flags(flags, training)
    return flags


@pytest.fixture
def no_launcher(monkeypatch):
    for name in (*launch_variables.TORCHRUN, "SLURM_NTASKS", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def under_torchrun(monkeypatch, no_launcher):
    for name, value in {"MASTER_ADDR": "localhost", "MASTER_PORT": "1", "WORLD_SIZE": "2", "RANK": "1"}.items():
        monkeypatch.setenv(name, value)


def test_one_process_stays_as_it_is(no_launcher):
    assert settled(distributed_world_size=1) == flags_of(distributed_world_size=1)


def test_meeting_places(no_launcher):
    first, second = (settled().distributed_init_method for _ in range(2))
    assert first.startswith("tcp://127.0.0.1:") and first != second
    assert settled(distributed_port=12345).distributed_init_method == "tcp://127.0.0.1:12345"
    given = settled(distributed_init_method="tcp://host:1", distributed_no_spawn=True, distributed_rank=1)
    assert (given.distributed_init_method, given.distributed_rank) == ("tcp://host:1", 1)
    assert (settled().distributed_backend, settled(distributed_backend="mpi").distributed_backend) == ("gloo", "mpi")


@pytest.mark.parametrize("asked", [1, 2])
def test_torchrun_decides_rank_and_world_size(under_torchrun, asked):
    flags = settled(distributed_world_size=asked)
    assert (flags.distributed_world_size, flags.distributed_rank, flags.distributed_no_spawn) == (2, 1, True)
    assert (flags.distributed_init_method, flags.distributed_backend) == ("env://", "gloo")


def test_torchrun_of_a_command_that_does_not_train(under_torchrun):
    assert settled(training=False, distributed_world_size=1).distributed_init_method is None


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"distributed_world_size": 0}, "--distributed-world-size 0: must be at least 1"),
        ({"distributed_no_spawn": True}, "--distributed-no-spawn: .* tcp://HOST:PORT"),
        ({"distributed_init_method": "env://"}, "--distributed-init-method env://: set"),
    ],
)
def test_flags_that_cannot_work_are_refused(no_launcher, changes, message):
    with pytest.raises(InputError, match=message):
        settled(**changes)


def test_other_world_size_than_torchruns_is_refused(under_torchrun):
    with pytest.raises(InputError, match=r"--distributed-world-size 3: torchrun started 2"):
        settled(distributed_world_size=3)


def test_several_tasks_of_srun_are_refused(no_launcher, monkeypatch):
    monkeypatch.setenv("SLURM_NTASKS", "2")
    assert settled().distributed_init_method  # an allocation, but no srun
    monkeypatch.setenv("SLURM_PROCID", "0")
    with pytest.raises(InputError, match="srun started 2 tasks"):
        settled()


def test_ranks_beyond_the_world_are_refused():
    cfg = SimpleNamespace(distributed_training=flags_of(distributed_init_method="tcp://host:1", distributed_rank=1))
    with pytest.raises(InputError, match="--distributed-rank 1: this command would start 2 processes"):
        cpu_launch.start_processes(cfg, None, {})


def test_cuda_is_left_to_fairseq(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    cfg = config()
    assert not cpu_launch.uses_cpu(cfg)
    cfg.common.cpu = True
    assert cpu_launch.uses_cpu(cfg)
