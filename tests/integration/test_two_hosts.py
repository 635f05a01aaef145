"""Two hosts, simulated by network namespaces with a virtual cable, train one model by the recipes for several hosts."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import fairseq_reservoir
from tests.support.commands import load

ROOT = Path(fairseq_reservoir.__file__).parents[1]
# The second host waits for its own namespace, then for its end of the cable. Both disappear with the processes.
TWO_HOSTS = """
set -e
host() { FIRST=10.77.0.1 HOSTS=2 GPUS_PER_HOST=1 GLOO_SOCKET_IFNAME=end$1 RANK_OF_HOST=$1 bash "${@:2}"; }
export -f host
unshare --net bash -euc '
    until ip link show end1 >/dev/null 2>&1; do sleep 0.05; done
    ip link set lo up; ip address add 10.77.0.2/24 dev end1; ip link set end1 up
    host 1 "$@"' bash "$@" &
second=$!
until [[ $(readlink /proc/$second/ns/net) != $(readlink /proc/$$/ns/net) ]]; do sleep 0.05; done
ip link set lo up; ip link add end0 type veth peer name end1 netns $second
ip address add 10.77.0.1/24 dev end0; ip link set end0 up
host 0 "$@"
wait $second
"""


def in_two_hosts(*words):
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    command = ["unshare", "--net", "bash", "-c", TWO_HOSTS, "bash", *map(str, words)]
    environment = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)


@pytest.fixture
def hosts():
    """Skip the test if a namespace with a cable cannot be created, without root or ``ip``. Later failures are real."""
    try:
        made = subprocess.run(
            "unshare --net ip link add end0 type veth peer name end1".split(), capture_output=True, text=True
        )
    except OSError as error:
        pytest.skip(f"no network namespaces: {error}")
    if made.returncode:
        pytest.skip(f"no network namespaces: {made.stderr.strip()}")


@pytest.mark.slow
def test_two_hosts_train_one_model(hosts, toy_data, tmp_path, monkeypatch):
    monkeypatch.setenv("DATA", str(toy_data))
    flags = "--cpu --arch reservoir_transformer_tiny --reservoir-encoder LF --max-update 3 --max-tokens 400 --num-workers 0".split()
    states = []
    for recipe, more in {
        "several_hosts.sh": [],
        "several_hosts_without_torchrun.sh": ["--distributed-no-spawn"],
    }.items():
        monkeypatch.setenv("SAVE_DIR", str(tmp_path / recipe))
        ended = in_two_hosts(f"examples/distributed/{recipe}", *flags, *more)
        assert ended.returncode == 0, ended.stderr
        states.append(load(tmp_path / recipe))
        assert states[-1]["cfg"]["distributed_training"]["distributed_world_size"] == 2
    one, other = (state["model"] for state in states)
    assert all(torch.equal(one[name], other[name]) for name in one)
