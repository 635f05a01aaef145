"""HostValues: one copy of the norm and the logged numbers, with their values, dtypes and shapes."""

import pytest
import torch

from fairseq_reservoir.speed.host_values import HostValues


class OnDevice(torch.Tensor):
    """A tensor on the CPU that reports another device, and counts copies to the host."""

    device = torch.device("meta")
    copies = 0

    def cpu(self):
        OnDevice.copies += 1
        return self.as_subclass(torch.Tensor)


def on_device(*args, **kwargs):
    return torch.tensor(*args, **kwargs).as_subclass(OnDevice)


def test_one_copy_with_exact_values():
    OnDevice.copies = 0
    first = {
        "loss": on_device(1 / 3),
        "nll_loss": on_device(0.1, dtype=torch.float64),
        "sample_size": on_device(2**40 + 1),
        "right": on_device([True]),
        "half": on_device(1.5, dtype=torch.float16),
        "several": on_device([1.0, 2.0]),
        "ntokens": 7,
        "nested": {"loss": on_device(1.0)},
    }
    second = {"loss": on_device(torch.inf, dtype=torch.bfloat16), "of the cpu": torch.tensor(2.0)}
    before = {
        name: torch.as_tensor(first[name]).as_subclass(torch.Tensor).clone() for name in first if name != "nested"
    }
    values = HostValues()
    values.outputs = [first, second, None]
    norm = on_device(1e-30)
    found = values.fetch(norm)
    assert OnDevice.copies == 1 and type(found) is torch.Tensor and found.equal(torch.tensor(1e-30))
    assert values.norm is norm
    for name in ("loss", "nll_loss", "sample_size", "right", "half"):
        assert type(first[name]) is torch.Tensor and first[name].dtype == before[name].dtype
        assert first[name].shape == before[name].shape and first[name].equal(before[name]), name
    assert type(first["several"]) is OnDevice and first["ntokens"] == 7 and type(first["nested"]["loss"]) is OnDevice
    assert second["loss"].dtype == torch.bfloat16 and second["loss"] == torch.inf and second["of the cpu"] == 2


@pytest.mark.parametrize("norm", [torch.inf, torch.nan])
def test_norm_that_is_not_finite(norm):
    assert str(HostValues().fetch(on_device(norm))) == f"tensor({norm})"


def test_nothing_is_done_on_a_cpu():
    values, output = HostValues(), {"loss": on_device(1.0)}
    values.outputs, norm = [output], torch.tensor(2.0)
    assert values.fetch(norm) is norm and type(output["loss"]) is OnDevice and values.norm is None


def test_recorded_train_step():
    values = HostValues()
    step = values.recorded(lambda sample, **options: (None, 1, {"loss": sample, **options}))
    assert step(3, ignore_grad=True) == (None, 1, {"loss": 3, "ignore_grad": True})
    step(sample=4)
    assert [output["loss"] for output in values.outputs] == [3, 4]
    values.begin_update()
    assert values.outputs == []
