"""``--fast`` in fp32 on a CPU: measure whether torch's default matrix products or oneDNN's are faster for a model.

``torch.set_float32_matmul_precision`` selects the products: "highest" is torch's default, and "medium" is oneDNN.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable
from statistics import median
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from fairseq.modules import MultiheadAttention
from torch import Tensor, nn

from .batched_products import OTHER, USUAL
from .fast_attention import is_usual

logger = logging.getLogger(__name__)

CLEARLY = 0.97  # oneDNN's products must take at most this share of the default's time
_INEXACT = 4  # oneDNN's error may be at most this multiple of the default's
_SHAPES, _SIDE = 4, 4096  # maximum number of weight shapes to measure, and maximum side of a weight
_ROUNDS, _FLOPS = 5, 2e9  # half a second in total at 60 GFLOP/s, with the test of exactness


class Measured(NamedTuple):
    """The result of a measurement.

    Attributes:
        ratio: the time of the model's matrix products with "medium" divided by their time with "highest". It is infinite if "medium"
            cannot be used.
        text: the result for the log.
    """

    ratio: float
    text: str


def unsupported_reason(model: nn.Module, common: Any) -> str:
    """Return why a training keeps torch's default without a measurement; "" if it measures both settings.

    Args:
        common: fairseq's option group ``common``.
    """
    if common.tpu or (torch.cuda.is_available() and not common.cpu):
        return "only on a CPU"
    if common.fp16 or common.bf16 or common.memory_efficient_fp16 or common.memory_efficient_bf16 or common.amp:
        return "only in fp32"
    if not all(is_usual(module) for module in model.modules() if isinstance(module, MultiheadAttention)):
        return "the model has attention that is not fairseq's"
    return "" if _is_default() else "torch's precision of matrix products is not the default"


def start(trainer: Any, recorded: str | None) -> str | None:
    """Choose the matrix products of a training with ``--fast``, and log the choice. All ranks must call this.

    Args:
        recorded: the choice of the run that is resumed, which is kept if the processor supports it; None for a new run.

    Returns:
        "highest" or "medium". None if the training does not support a choice; torch's setting must then not be changed.
    """
    model = trainer.get_model()
    if unsupported_reason(model, trainer.cfg.common):
        return None
    if recorded == USUAL:
        logger.info("matrix products: torch's default, as in the resumed run")
        return USUAL
    measured = measure(weights_of(model), trainer.cfg.dataset.max_tokens or 1024, timed=recorded is None)
    if dist.is_initialized():  # the slowest rank decides, because the others wait for it
        ranks: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(ranks, measured)
        measured = max(ranks, key=lambda rank: rank.ratio)
    return choose(measured, recorded)


def choose(measured: Measured, recorded: str | None) -> str:
    """Return the setting for the training, and log the setting with the reason. For ``recorded``, see ``start``."""
    chosen = OTHER if measured.ratio <= CLEARLY else USUAL
    name = "oneDNN's" if chosen == OTHER else "torch's default"
    if recorded == OTHER != chosen:
        logger.warning(
            "the run that is resumed computed matrix products with oneDNN, but this run does not; results will differ by rounding"
        )
    logger.info("matrix products: %s (%s)", name, measured.text)
    return chosen


def weights_of(model: nn.Module) -> Counter[tuple[int, int]]:
    """Count the shapes (in, out) of a model's linear layers. Shorten long sides, and return only the shapes with the most work."""
    shapes: Counter[tuple[int, int]] = Counter()
    for module in model.modules():
        sides = getattr(module, "in_features", None), getattr(module, "out_features", None)
        if isinstance(sides[0], int) and isinstance(sides[1], int):
            shapes[min(sides[0], _SIDE), min(sides[1], _SIDE)] += 1
    largest = sorted(shapes, key=lambda shape: (-shapes[shape] * shape[0] * shape[1], shape))[:_SHAPES]
    return Counter({shape: shapes[shape] for shape in largest})


def multiply(precision: str, a: Tensor, b: Tensor) -> Tensor:
    """Compute the matrix product a b with a setting of torch's precision, then restore the default setting."""
    torch.set_float32_matmul_precision(precision)
    try:
        return a @ b
    finally:
        torch.set_float32_matmul_precision(USUAL)


def measure(
    weights: Counter[tuple[int, int]],
    tokens: int,
    timed: bool = True,
    product: Callable[[str, Tensor, Tensor], Tensor] = multiply,
    clock: Callable[[], float] = time.perf_counter,
) -> Measured:
    """Compare both settings on the three products of linear layers: output, gradient of the input, gradient of the weight.

    "medium" cannot be used if its error, measured against float64, is clearly larger than the error of "highest". With "medium", some
    processors multiply in bf16. If both settings return the same bits, the processor has only one kind of matrix product.

    Args:
        weights: the number of weights of each shape, (in, out).
        tokens: maximum number of tokens in a batch. The measurement may use fewer tokens.
        timed: if False, only the exactness is measured, and the returned ratio is 0 if "medium" can be used.
        product: function that computes the matrix product a b with a setting.
        clock: function that returns the time in seconds.
    """
    rows = int(min(tokens, 1024, max(64, _FLOPS / (6 * sum(a * b for a, b in weights) or 1))))
    random = torch.Generator().manual_seed(0)
    pairs: list[tuple[int, Tensor, Tensor]] = []
    for (inner, outer), count in weights.items():
        x, w, g = (torch.randn(*s, generator=random) for s in ((rows, inner), (outer, inner), (rows, outer)))
        pairs += [(count, x, w.t()), (count, g, w), (count, g.t(), x)]
    same = True
    for _, a, b in pairs:
        usual, other, exact = product(USUAL, a, b), product(OTHER, a, b), a.double() @ b.double()
        same = same and usual.equal(other)
        errors = [((y - exact).norm() / exact.norm()).item() for y in (usual, other)]
        if not errors[1] <= _INEXACT * errors[0]:
            text = f"the error of oneDNN's products is {errors[1]:.0e}, the error of the default products is {errors[0]:.0e}"
            return Measured(float("inf"), text)
    if same:
        return Measured(1.0, "this processor has only one kind of matrix product")
    if not timed:
        return Measured(0.0, "as in the resumed run")
    times = {USUAL: 0.0, OTHER: 0.0}
    for count, a, b in pairs:
        seconds: dict[str, list[float]] = {USUAL: [], OTHER: []}
        for number in range(_ROUNDS):
            for precision in (USUAL, OTHER) if number % 2 else (OTHER, USUAL):
                begin = clock()
                product(precision, a, b)
                seconds[precision].append(clock() - begin)
        for precision, values in seconds.items():
            times[precision] += count * median(values)
    ratio = times[OTHER] / times[USUAL]
    return Measured(ratio, f"oneDNN took {ratio:.2f} times as long as torch's default")


def _is_default() -> bool:
    try:
        return torch.get_float32_matmul_precision() == USUAL
    except RuntimeError:  # a program has used torch's newer settings
        return False
