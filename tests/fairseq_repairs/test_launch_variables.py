"""Invalid environment variables of torchrun and Slurm are refused in one line, or ignored if no code reads them."""

from types import SimpleNamespace

import pytest

from fairseq_reservoir.errors import InputError
from fairseq_reservoir.fairseq_repairs import cpu_launch, launch_variables
from tests.support.commands import error_of

GOOD = {"MASTER_ADDR": "localhost", "MASTER_PORT": "29500", "WORLD_SIZE": "2", "RANK": "1"}
INVALID = ("", "x", "1.5", "-1", "1e3", "[", "²", "9" * 5000)
SLURM = {"SLURM_NNODES": "2", "SLURM_NTASKS": "4", "SLURM_NODEID": "0", "SLURM_PROCID": "1", "SLURM_LOCALID": "1"}


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    """Unset all variables of launchers. Return a function that sets variables."""
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


def test_torchruns_variables_are_read(environment):
    assert launch_variables.torchrun() is None
    environment(**GOOD)
    assert launch_variables.torchrun() == (2, 1)
    assert not cpu_launch.is_first_process(SimpleNamespace(distributed_training=flags()))
    environment(RANK="0")
    assert cpu_launch.is_first_process(SimpleNamespace(distributed_training=flags()))


@pytest.mark.parametrize("value", INVALID)
@pytest.mark.parametrize("name", ["MASTER_PORT", "WORLD_SIZE", "RANK"])
def test_invalid_values_for_torchrun_are_refused(environment, name, value):
    environment(**GOOD | {name: value})
    with pytest.raises(InputError, match=rf"^{name} '.*': this environment variable must be a whole number"):
        launch_variables.torchrun()


@pytest.mark.parametrize(
    "name, value", [("RANK", "2"), ("WORLD_SIZE", "0"), ("MASTER_PORT", "65536"), ("MASTER_PORT", "0")]
)
def test_numbers_out_of_range_are_refused(environment, name, value):
    environment(**GOOD | {name: value})
    with pytest.raises(InputError, match=f"^{name} '{value}': "):
        launch_variables.torchrun()


def test_a_rank_without_the_other_three_variables_is_ignored(environment):
    """Other programs use such names as well. fairseq reads all four variables or none."""
    environment(RANK="x")
    assert cpu_launch.is_first_process(SimpleNamespace(distributed_training=flags()))
    launch_variables.check_for_fairseq(flags())


@pytest.mark.parametrize("name", [*SLURM, "SLURM_NTASKS_PER_NODE", "SLURM_JOB_ID"])
def test_invalid_values_for_slurm_are_refused_if_fairseq_reads_them(environment, name):
    environment(**SLURM, SLURM_STEP_NODELIST="node[1-2]", SLURM_JOB_ID="12")
    launch_variables.check_for_fairseq(flags())
    environment(**{name: "x"})
    launch_variables.check_for_fairseq(flags(distributed_world_size=1))
    launch_variables.check_for_fairseq(flags(distributed_init_method="tcp://host:1"))
    with pytest.raises(InputError, match=f"^{name} 'x': this environment variable must be a whole number"):
        launch_variables.check_for_fairseq(flags())


def test_the_first_process_of_a_host(environment):
    assert cpu_launch.is_first_on_host(flags())
    environment(LOCAL_RANK="x")  # set by another program
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


@pytest.mark.parametrize("value", INVALID)
def test_an_invalid_port_for_env_is_refused(environment, value):
    environment(**GOOD | {"MASTER_PORT": value})
    with pytest.raises(InputError, match="^MASTER_PORT "):
        launch_variables.check_for_fairseq(flags(distributed_init_method="env://"))


@pytest.mark.parametrize(
    "variables, start",
    [
        (
            GOOD | {"RANK": "x"},
            "RANK 'x': this environment variable must be a whole number from 0 to 1; correct or unset it",
        ),
        (GOOD | {"MASTER_ADDR": ""}, "MASTER_ADDR '': this environment variable must name the host of rank 0"),
        (
            {"FAIRSEQ_RESERVOIR_THREADS": "["},
            "--threads [ (or FAIRSEQ_RESERVOIR_THREADS): must be a whole number from 1 to 1024",
        ),
    ],
)
def test_a_training_is_refused_in_one_line(environment, variables, start, toy_data, tmp_path):
    environment(**variables)
    text, status = error_of(toy_data, "--reservoir-encoder", "LF", "--save-dir", tmp_path / "run")
    assert text.startswith(f"fairseq-train: error: {start}") and text.count("\n") == 1 and status == 2
    assert not (tmp_path / "run").exists()


def test_the_first_task_of_srun_on_a_host(environment):
    environment(SLURM_LOCALID="1")  # set in a shell within a job, which lacks the names of its hosts
    assert cpu_launch.is_first_on_host(flags())
    environment(**SLURM, SLURM_STEP_NODELIST="node[1-2]")
    assert not cpu_launch.is_first_on_host(flags())
    assert not cpu_launch.is_first_on_host(flags(distributed_init_method="tcp://host:1", distributed_rank=1))
    assert cpu_launch.is_first_on_host(flags(distributed_world_size=1))  # each task trains its own model
    environment(SLURM_LOCALID="0", SLURM_PROCID="2")
    assert cpu_launch.is_first_on_host(flags())
    environment(**GOOD, LOCAL_RANK="1")  # torchrun under srun
    assert not cpu_launch.is_first_on_host(flags())
