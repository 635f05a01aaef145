"""Two ranks, on one GPU with gloo or on two with NCCL, train the same model as one process with the same batches."""

import pytest
import torch

from fairseq_reservoir.random_tensors import digest
from fairseq_reservoir.trainer.frozen_guard import frozen_tensors
from tests.gpu.test_frozen_tensors import MODELS
from tests.support.commands import train
from tests.support.several_processes import in_processes, train_as

# Two batches in each update. A step of SGD is as exact as its gradient. A step of Adam is only the sign of a small gradient.
RUN = "--batch-size 8 --dropout 0 --optimizer sgd --lr 0.1 --max-update 3 --disable-validation --no-save".split()


def result(run):
    """Weights on the CPU, digests of frozen tensors before and after, and the type of the device."""
    frozen = frozen_tensors(run.trainer)
    return {
        "weights": {name: tensor.cpu() for name, tensor in run.weights.items()},
        "before": {name: digest.of_tensor(run.initial[name]) for name in frozen},
        "after": {name: digest.of_tensor(tensor) for name, tensor in frozen.items()},
        "device": next(run.model.parameters()).device.type,
    }


def one_of_two(rank, folder, data, begin, backend):
    """The results of both models, one after the other."""
    words = [*RUN, "--distributed-backend", backend, "--device-id", rank if backend == "nccl" else 0]
    found = {}
    for model, flags in MODELS.items():
        found[model] = result(train_as(rank, 2, folder / f"meeting of {model}", data, *words, *flags, begin=begin))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["gloo", "nccl"])
def test_two_are_one(device, begin, toy_data, tmp_path, backend):
    if backend == "nccl" and (device == "cpu" or torch.cuda.device_count() < 2):
        pytest.skip("NCCL takes two GPUs for two processes")
    found = in_processes(2, one_of_two, tmp_path, toy_data, begin, backend)
    for model, flags in MODELS.items():
        alone = result(train(toy_data, *RUN, *flags, "--update-freq", 2, begin=begin))
        assert alone["before"] and alone["device"] == device
        for process in (together[model] for together in found):
            assert process["device"] == device
            assert process["before"] == process["after"] == alone["before"] == alone["after"]
            assert process["weights"].keys() == alone["weights"].keys()
            for name, tensor in process["weights"].items():
                assert tensor.equal(found[0][model]["weights"][name]), name
                torch.testing.assert_close(tensor, alone["weights"][name], rtol=1e-4, atol=1e-5)
