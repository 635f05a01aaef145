"""Plasticity: how much a layer still changes what it says of some sentences, and so whether it has learned.

Torch alone; ``freeze_auto`` brings it into fairseq's trainer.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch

INTERVAL, THRESHOLD, KEEP = 100, 0.2, 1
# How many times one after the other a layer has to be found settled.
PATIENCE = 2


def similarities(outputs: torch.Tensor) -> torch.Tensor:
    """How alike a layer finds the rows it was given.

        S_ij = x_i . x_j / |(x_i . x_1, ..., x_i . x_n)|

    the matrix of similarity-preserving distillation (Tung and Mori, 2019), each row of length 1. A layer that only turns its
    outputs has the same one, and whoever reads it, once trained a little, the same news.

    Args:
        outputs: (n, features), of any dtype.

    Returns:
        (n, n) in float32; a row of an output that is 0 is 0.
    """
    rows = outputs.detach().float()
    return torch.nn.functional.normalize(rows @ rows.T, dim=1, eps=1e-12)


class Plasticity:
    """Of every layer that may freeze, how much it still changes, and which have settled.

    A layer is looked at once an interval. With S_T its ``similarities`` at the end of interval T, of n rows,

        p_T = |S_T - S_{T-1}| / sqrt(n)                 plasticity, from 0 to 2; | | is Frobenius'
        settled at T: p_T < threshold * max_{t <= T} p_t

    Layers freeze from the first on, when they have been settled ``PATIENCE`` times running; several at once, but none above one that
    has not.

    This is the plasticity of Egeria (Wang et al., "Egeria: Efficient DNN Training with Knowledge-Guided Layer Freezing", EuroSys
    2023): the similarity-preserving distance between a layer now and in a snapshot of the same run. Egeria compares them on the
    batch of the moment, runs the snapshot as a second, quantized model, and takes a layer as settled when its smoothed plasticity
    hardly falls any more. Here the rows are always the same. So the matrices of the last look stand for the snapshot, no second
    model is needed, nothing is done between looks, and a layer is compared with the most that it changed itself.

    The other candidate was the rate of change of the gradient's norm (AutoFreeze, Liu et al. 2021), made for fine-tuning. In a
    training from random weights it stood still too early: between updates 150 and 250 the norm of an encoder layer's gradients
    summed over 50 updates moved by 0 to 12 % (one run on Multi30k, 128/512, 4 + 2 layers), where the validation loss of the same
    model was falling from 7.7 to 6.6. How good ``THRESHOLD`` is for a whole training has not been measured.

    Args:
        names: of the layers, in the order in which they may freeze.
        threshold: share of a layer's largest plasticity, between 0 and 1.
    """

    def __init__(self, names: Iterable[str], threshold: float = THRESHOLD):
        self.names, self.threshold = list(names), threshold
        self.last: dict[str, torch.Tensor] = {}
        self.values: dict[str, float] = {}
        self.largest: dict[str, float] = {}
        self.settled: dict[str, int] = {}

    def look(self, now: Mapping[str, torch.Tensor]) -> list[str]:
        """Takes the ``similarities`` of all layers of ``names``; returns those that have learned. Reads the device once."""
        compared = [name for name in self.names if name in self.last]
        distances = [
            torch.linalg.matrix_norm(now[n] - self.last[n].to(now[n])) / math.sqrt(len(now[n])) for n in compared
        ]
        self.last = {name: now[name] for name in self.names}
        self.values = dict(zip(compared, torch.stack(distances).tolist() if distances else [], strict=True))
        for name, value in self.values.items():
            self.largest[name] = max(self.largest.get(name, 0.0), value)
            is_settled = value < self.threshold * self.largest[name] or self.largest[name] == 0
            self.settled[name] = self.settled.get(name, 0) + 1 if is_settled else 0
        learned = []
        for name in self.names:
            if self.settled.get(name, 0) < PATIENCE:
                break
            learned.append(name)
        return learned

    def drop(self, names: Iterable[str]) -> None:
        """Looks no more at these layers."""
        gone = set(names)
        self.names = [name for name in self.names if name not in gone]
        for kept in (self.last, self.largest, self.settled):
            for name in gone & kept.keys():
                del kept[name]

    def state_dict(self) -> dict[str, Any]:
        """What ``load_state_dict`` needs to go on, with the layers dropped by then."""
        return {name: dict(getattr(self, name)) for name in ("last", "largest", "settled")} | {
            "names": list(self.names)
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.last, self.largest, self.settled = (dict(state[name]) for name in ("last", "largest", "settled"))
        self.names = list(state["names"])
