"""Copy the gradient norm of an update and the values that it logs from the device to the host at once.

fairseq waits for the device when it checks that the norm is finite, and again for each value that it logs. Here there is one wait, before
the optimizer step.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class HostValues:
    """The logging outputs of an update: one dictionary for each batch, or their sums over all ranks.

    Attributes:
        outputs: the dictionaries that fairseq will log. ``fetch`` changes their values in place.
        norm: the gradient norm on the device, as ``fetch`` got it.
    """

    def __init__(self) -> None:
        self.begin_update()

    def begin_update(self) -> None:
        """Forget the logging outputs of the last update."""
        self.outputs: list[Any] = []
        self.norm: Tensor | None = None

    def recorded(self, train_step: Callable[..., tuple]) -> Callable[..., tuple]:
        """Return a function that calls the ``train_step`` of a task and adds its logging output to ``outputs``."""

        def step(*args: Any, **kwargs: Any) -> tuple:
            loss, sample_size, logging_output = train_step(*args, **kwargs)
            self.outputs.append(logging_output)
            return loss, sample_size, logging_output

        return step

    def fetch(self, norm: Tensor) -> Tensor:
        """Return the norm as a tensor on the CPU, and replace every number on the device in ``outputs`` by a tensor on the CPU.

        All are copied as one float64 tensor, which holds floating-point numbers and integers below 2^53 exactly. Shapes and dtypes stay.
        Tensors with several entries stay on the device. Without a norm on the device, nothing is changed.
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
