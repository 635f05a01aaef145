"""Nonsense in environment variables of torchrun and Slurm is refused in one line, and ignored where no code reads it."""

from types import SimpleNamespace

import pytest

from fairseq_reservoir.errors import InputError
from fairseq_reservoir.fairseq_repairs import cpu_launch, launch_variables
from tests.support.commands import error_of

GOOD = {"MASTER_ADDR": "localhost", "MASTER_PORT": "29500", "WORLD_SIZE": "2", "RANK": "1"}
NONSENSE = ("", "x", "1.5", "-1", "1e3", "[", "²", "9" * 5000)
SLURM = {"SLURM_NNODES": "2", "SLURM_NTASKS": "4", "SLURM_NODEID": "0", "SLURM_PROCID": "1", "SLURM_LOCALID": "1"}


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """Return a function that sets variables; without it none of a launcher is set."""
    for name in (
        *GOOD,
        *SLURM,
        "SLURM_NTASKS_PER_NODE",
        "SLURM_STEP_NODELIST",
        "SLURM_JOB_NODELIST",
        "SLURM_JOB_ID",
        "LOCAL_RANK",
    ):
        monkeypatch.delenv(name, raising=False)

    def put(**variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return put


def flags(**changes):
    given = {"distributed_init_method": None, "distributed_world_size": 2, "distributed_rank": 0}
    return SimpleNamespace(**(given | changes))


def test_torchruns_own_are_read(environment):
    assert launch_variables.torchrun() is None
    environment(**GOOD)
    assert launch_variables.torchrun() == (2, 1)
    assert not cpu_launch.is_first_process(SimpleNamespace(distributed_training=flags()))
    environment(RANK="0")
    assert cpu_launch.is_first_process(SimpleNamespace(distributed_training=flags()))


@pytest.mark.parametrize("value", NONSENSE)
@pytest.mark.parametrize("name", ["MASTER_PORT", "WORLD_SIZE", "RANK"])
def test_nonsense_of_torchrun_is_refused(environment, name, value):
    environment(**GOOD | {name: value})
    with pytest.raises(InputError, match=rf"^{name} '.*': this environment variable must be a whole number"):
        launch_variables.torchrun()


@pytest.mark.parametrize(
    "name, value", [("RANK", "2"), ("WORLD_SIZE", "0"), ("MASTER_PORT", "65536"), ("MASTER_PORT", "0")]
)
def test_numbers_that_cannot_be_are_refused(environment, name, value):
    environment(**GOOD | {name: value})
    with pytest.raises(InputError, match=f"^{name} '{value}': "):
        launch_variables.torchrun()


def test_nobody_reads_a_rank_without_the_other_three(environment):
    """Other programs have variables of such names; fairseq reads all four or none."""
    environment(RANK="x")
    assert cpu_launch.is_first_process(SimpleNamespace(distributed_training=flags()))
    launch_variables.check_for_fairseq(flags())


@pytest.mark.parametrize("name", [*SLURM, "SLURM_NTASKS_PER_NODE", "SLURM_JOB_ID"])
def test_nonsense_of_slurm_is_refused_where_fairseq_reads_it(environment, name):
    environment(**SLURM, SLURM_STEP_NODELIST="node[1-2]", SLURM_JOB_ID="12")
    launch_variables.check_for_fairseq(flags())
    environment(**{name: "x"})
    launch_variables.check_for_fairseq(flags(distributed_world_size=1))
    launch_variables.check_for_fairseq(flags(distributed_init_method="tcp://host:1"))
    with pytest.raises(InputError, match=f"^{name} 'x': this environment variable must be a whole number"):
        launch_variables.check_for_fairseq(flags())


def test_the_first_process_of_a_host(environment):
    assert cpu_launch.is_first_on_host(flags())
    environment(LOCAL_RANK="x")  # of another program
    assert cpu_launch.is_first_on_host(flags())
    environment(**GOOD, LOCAL_RANK="1")
    assert not cpu_launch.is_first_on_host(flags())
    environment(LOCAL_RANK="0")
    assert cpu_launch.is_first_on_host(flags())
    environment(LOCAL_RANK="x")
    with pytest.raises(
        InputError, match="^LOCAL_RANK 'x': this environment variable must be a whole number of at least 0"
    ):
        cpu_launch.is_first_on_host(flags())


@pytest.mark.parametrize("value", NONSENSE)
def test_a_port_that_env_reads(environment, value):
    environment(**GOOD | {"MASTER_PORT": value})
    with pytest.raises(InputError, match="^MASTER_PORT "):
        launch_variables.check_for_fairseq(flags(distributed_init_method="env://"))


@pytest.mark.parametrize(
    "variables, start",
    [
        (GOOD | {"RANK": "x"}, "RANK 'x': this environment variable must be a whole number from 0 to 1; or unset it"),
        (GOOD | {"MASTER_ADDR": ""}, "MASTER_ADDR '': this environment variable must name the host of rank 0"),
        (
            {"FAIRSEQ_RESERVOIR_THREADS": "["},
            "--threads [ (or FAIRSEQ_RESERVOIR_THREADS): must be a whole number from 1 to 1024",
        ),
    ],
)
def test_a_training_ends_in_one_line(environment, variables, start, toy_data, tmp_path):
    environment(**variables)
    text, status = error_of(toy_data, "--reservoir-encoder", "LF", "--save-dir", tmp_path / "run")
    assert text.startswith(f"fairseq-train: error: {start}") and text.count("\n") == 1 and status == 2
    assert not (tmp_path / "run").exists()


def test_the_first_task_of_srun_on_a_host(environment):
    environment(SLURM_LOCALID="1")  # of a shell within a job, without the names of its hosts
    assert cpu_launch.is_first_on_host(flags())
    environment(**SLURM, SLURM_STEP_NODELIST="node[1-2]")
    assert not cpu_launch.is_first_on_host(flags())
    assert not cpu_launch.is_first_on_host(flags(distributed_init_method="tcp://host:1", distributed_rank=1))
    assert cpu_launch.is_first_on_host(flags(distributed_world_size=1))  # each task trains a model of its own
    environment(SLURM_LOCALID="0", SLURM_PROCID="2")
    assert cpu_launch.is_first_on_host(flags())
    environment(**GOOD, LOCAL_RANK="1")  # torchrun under srun
    assert not cpu_launch.is_first_on_host(flags())
