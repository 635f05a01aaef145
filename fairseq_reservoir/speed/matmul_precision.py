"""``--fast`` in fp32 on a CPU: measure which of torch's two matrix products is faster for a model, and train with that one."""

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

CLEARLY = 0.97  # the other product must take at most this share of the usual one's time
_INEXACT = 4  # the other product may have at most this multiple of the usual one's error
_SHAPES, _SIDE = 4, 4096  # number of different weights to measure, and the largest side of a weight
_ROUNDS, _FLOPS = 5, 2e9  # half a second in all at 60 GFLOP/s, with the test of exactness


class Measured(NamedTuple):
    """The time of a model's products with "medium" divided by the time with "highest". Infinite if "medium" cannot be used."""

    ratio: float
    text: str


def unsupported_reason(model: nn.Module, common: Any) -> str:
    """The reason why a training never changes the products; empty if it measures. ``common`` has fairseq's flags of that group."""
    if common.tpu or (torch.cuda.is_available() and not common.cpu):
        return "only on a CPU"
    if common.fp16 or common.bf16 or common.memory_efficient_fp16 or common.memory_efficient_bf16 or common.amp:
        return "only in fp32"
    if not all(is_usual(module) for module in model.modules() if isinstance(module, MultiheadAttention)):
        return "the model has attention of another kind than fairseq's usual one"
    return "" if _is_default() else "torch's precision of matrix products is not the default"


def start(trainer: Any, recorded: str | None) -> str | None:
    """Choose the products of a training with ``--fast``, and log the choice. Every rank must call this.

    Returns:
        "highest" or "medium". None if the choice cannot be made, so that no setting is touched.

    Args:
        recorded: the choice of the run that is resumed, which is kept where the processor allows it; None for a new run.
    """
    model = trainer.get_model()
    if unsupported_reason(model, trainer.cfg.common):
        return None
    if recorded == USUAL:
        logger.info("matrix products: torch's usual ones, as in the run that is resumed")
        return USUAL
    measured = measure(weights_of(model), trainer.cfg.dataset.max_tokens or 1024, timed=recorded is None)
    if dist.is_initialized():  # the slowest rank decides, because the others wait for it
        ranks: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(ranks, measured)
        measured = max(ranks, key=lambda rank: rank.ratio)
    return choose(measured, recorded)


def choose(measured: Measured, recorded: str | None) -> str:
    """Return the setting to train with and log one line with the reason. See ``start`` for ``recorded``."""
    chosen = OTHER if measured.ratio <= CLEARLY else USUAL
    name = "oneDNN's" if chosen == OTHER else "torch's usual ones"
    if recorded == OTHER != chosen:
        logger.warning("matrix products: the run that is resumed used oneDNN's; the results will differ by rounding")
    logger.info("matrix products: %s (%s)", name, measured.text)
    return chosen


def weights_of(model: nn.Module) -> Counter[tuple[int, int]]:
    """Count the shapes (in, out) of a model's linear layers, and keep those with most of the work. Long sides are cut."""
    shapes: Counter[tuple[int, int]] = Counter()
    for module in model.modules():
        sides = getattr(module, "in_features", None), getattr(module, "out_features", None)
        if isinstance(sides[0], int) and isinstance(sides[1], int):
            shapes[min(sides[0], _SIDE), min(sides[1], _SIDE)] += 1
    largest = sorted(shapes, key=lambda shape: (-shapes[shape] * shape[0] * shape[1], shape))[:_SHAPES]
    return Counter({shape: shapes[shape] for shape in largest})


def multiply(precision: str, a: Tensor, b: Tensor) -> Tensor:
    """Compute a b with a setting of torch's precision, and restore the usual one."""
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

    The result is unusable if "medium" is less exact than "highest" (as on processors that then multiply in bf16), measured by the
    distance to the products in float64. If both give the same bits, they are the same product.

    Args:
        weights: the number of weights of each shape, (in, out).
        tokens: the largest number of tokens of a batch; fewer are measured.
        timed: without it only exactness is measured, and the ratio is 0 if "medium" can be used.
        product: computes a b with a setting.
        clock: the time in seconds.
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
            return Measured(float("inf"), f"oneDNN's have an error of {errors[1]:.0e}, the usual ones {errors[0]:.0e}")
    if same:
        return Measured(1.0, "this processor has only one kind")
    if not timed:
        return Measured(0.0, "as in the run that is resumed")
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
    return Measured(ratio, f"oneDNN's took {ratio:.2f} of the time of the usual ones")


def _is_default() -> bool:
    try:
        return torch.get_float32_matmul_precision() == USUAL
    except RuntimeError:  # a program has used torch's newer settings
        return False
