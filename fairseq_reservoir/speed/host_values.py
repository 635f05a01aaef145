"""Copy the gradient norm and all logged values of an update from the device to the host in one copy.

fairseq waits for the device when it checks that the norm is finite, and again for each value that it logs. With this module, the host
waits once, before the optimizer step.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class HostValues:
    """The logging outputs of an update: one dictionary for each batch, or one dictionary with the sums over all ranks.

    Attributes:
        outputs: the dictionaries that fairseq will log. ``fetch`` replaces values in them.
        norm: the last gradient norm that ``fetch`` has copied, as a tensor on the device.
    """

    def __init__(self) -> None:
        self.begin_update()

    def begin_update(self) -> None:
        """Drop the logging outputs of the previous update."""
        self.outputs: list[Any] = []
        self.norm: Tensor | None = None

    def recorded(self, train_step: Callable[..., tuple]) -> Callable[..., tuple]:
        """Wrap the ``train_step`` of a task. The returned function also adds the logging output to ``outputs``."""

        def step(*args: Any, **kwargs: Any) -> tuple:
            loss, sample_size, logging_output = train_step(*args, **kwargs)
            self.outputs.append(logging_output)
            return loss, sample_size, logging_output

        return step

    def fetch(self, norm: Tensor) -> Tensor:
        """Copy the norm to the CPU and return the copy. In ``outputs``, replace each single number on the device by a copy on the CPU.

        All numbers are copied as one float64 tensor, which is exact for floating-point numbers and for integers below 2^53. Shapes and
        dtypes do not change. Tensors with several entries stay on the device. If the norm is on the CPU, nothing is done.
        """
        if norm.device.type == "cpu":
            return norm
        self.norm = norm
        places: list[tuple[dict, Any]] = [
            (output, key)
            for output in self.outputs
            if isinstance(output, dict)
            for key, value in output.items()
            if isinstance(value, Tensor) and value.device == norm.device and value.numel() == 1
        ]
        tensors = [norm.detach(), *(output[key].detach() for output, key in places)]
        numbers = torch.stack([x.reshape(()).double() for x in tensors]).cpu()
        found = [number.to(x.dtype).reshape(x.shape) for number, x in zip(numbers.unbind(), tensors)]
        for (output, key), value in zip(places, found[1:]):
            output[key] = value
        return found[0]
