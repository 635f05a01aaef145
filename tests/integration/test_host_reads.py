"""Our code never reads values of a tensor in an update, because on a GPU this would synchronise with the device."""

import sys
from pathlib import Path

import fairseq
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import fairseq_reservoir
from tests.support.commands import train

_OURS, _FAIRSEQ = (str(Path(package.__file__).parent) for package in (fairseq_reservoir, fairseq))
# Operations that return a Python number, a data-dependent size, or the status of a factorisation.
_READS = "_local_scalar_dense equal nonzero masked_select _unique2 unique_dim _linalg_check_errors".split()


class HostReads(TorchDispatchMode):
    """Mode that collects "operation file:line" in ``found`` for each place in the package where an update reads values.

    It ignores reads by fairseq. It does not detect copies of whole tensors, as by ``tolist``.
    """

    def __init__(self):
        super().__init__()
        self.found = set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.name().removeprefix("aten::").partition(".")[0]
        by_mask = name in ("index", "index_put", "index_put_") and any(
            i is not None and i.dtype == torch.bool for i in args[1]
        )
        if name in _READS or by_mask:
            self._note(name, sys._getframe(1))
        return function(*args, **(kwargs or {}))

    def _note(self, name, frame):
        whose, in_update = None, False
        while frame is not None:
            file = frame.f_code.co_filename
            if whose is None and file.startswith((_OURS, _FAIRSEQ)):
                whose = f"{name} {Path(file).name}:{frame.f_lineno}" if file.startswith(_OURS) else ""
            in_update |= frame.f_code.co_name == "train_step" and file.endswith("trainer.py")
            frame = frame.f_back
        if whose and in_update:
            self.found.add(whose)


RUNS = {
    "backskip synthetic": "--reservoir-encoder LTL --backskip synthetic --backskip-warmup 3 --backskip-anneal 0.5",
    "backskip reinforce": "--reservoir-encoder LTL --backskip reinforce --backskip-warmup 3 --backskip-anneal 0.5",
    "average": "--reservoir-encoder LT --freeze emb --store-ema",
    "average in fp32": "--reservoir-encoder LT --freeze emb --store-ema --ema-fp32",
    "average of masks": "--arch supermask_one_layer_transformer --encoder-layers 2 --mask-scope global --store-ema",
    "adapters": "--encoder-layers 2 --freeze att --frozen-adapter lora",
}


@pytest.mark.parametrize("which", RUNS)
def test_an_update_reads_nothing(toy_data, which):
    with HostReads() as reads:
        run = train(
            toy_data,
            *RUNS[which].split(),
            "--decoder-layers",
            1,
            "--disable-validation",
            "--no-save",
            "--max-update",
            6,
        )
    assert len(run.losses) == 6 and reads.found == set()


def test_reads_are_found(toy_data, monkeypatch):
    """Read values each time the update number is set, to test the detection."""
    from fairseq_reservoir.layers.backskip.backward_skip import Backskip

    reads_of_x = ("float(x.sum())", "x.equal(x)", "x[x > 0]", "torch.linalg.inv(x)")
    source = "\n    ".join(["def set_num_updates(skip, number):", *reads_of_x])
    scope = {"torch": torch, "x": torch.eye(2)}
    exec(compile(source, f"{_OURS}/reading.py", "exec"), scope)
    monkeypatch.setattr(Backskip, "set_num_updates", scope["set_num_updates"])
    flags = (
        "--reservoir-encoder LF --backskip identity --decoder-layers 1 --disable-validation --no-save --max-update 1"
    )
    with HostReads() as reads:
        train(toy_data, *flags.split())
    assert {place.split()[1] for place in reads.found} == {f"reading.py:{line}" for line in (2, 3, 4, 5)}
