"""Time of one linear layer, forward and backward: torch.nn.Linear, MaskedLinear, and a sort in every forward pass.

MaskedLinear selects its mask again in every step, as in training. ``pairs`` describes the comparison.

  python benchmarks/masked_linear.py
  python benchmarks/masked_linear.py --in-features 1024 --out-features 4096 --tokens 8192
"""

import argparse
import sys
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks import pairs  # noqa: E402
from benchmarks.sorted_masks import sort_at_every_use  # noqa: E402
from fairseq_reservoir.masks.masked_linear import MaskedLinear  # noqa: E402

TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
LAYERS = {
    "nn.Linear": lambda *sizes: torch.nn.Linear(*sizes, bias=False),
    "MaskedLinear": lambda *sizes: MaskedLinear(*sizes, seed=1),
    "a sort in every forward": lambda *sizes: sort_at_every_use(MaskedLinear(*sizes, seed=1)),
}


class Arm:
    """A layer without bias, its input, and the gradient of its output."""

    flags = ""

    def __init__(self, name, dtype, shape):
        self.name, self.update = name, 0
        torch.manual_seed(shape.seed)
        kind = {"dtype": dtype, "device": shape.device}
        self.layer = LAYERS[name](shape.in_features, shape.out_features).to(**kind)
        self.x = torch.randn(shape.tokens, shape.in_features, **kind).requires_grad_()
        self.gradient = torch.randn(shape.tokens, shape.out_features, **kind)

    def step(self):
        """Run forward and backward. Return their seconds."""
        self.x.grad = None
        self.layer.zero_grad()
        started = time.perf_counter()
        if hasattr(self.layer, "set_num_updates"):
            self.update += 1
            self.layer.set_num_updates(self.update)
        self.layer(self.x).backward(self.gradient)
        if self.x.is_cuda:
            torch.cuda.synchronize()
        return time.perf_counter() - started


def read_arguments(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    pairs.add_arguments(parser, "masked_linear", pairs=100)
    parser.add_argument("--in-features", type=int, default=512, help="default 512")
    parser.add_argument("--out-features", type=int, default=1024, help="default 1024")
    parser.add_argument("--tokens", type=int, default=4096, help="rows of the input (default 4096)")
    given = parser.parse_args(arguments)
    pairs.check_positive(parser, given, ("pairs", "in_features", "out_features", "tokens"))
    return given


def main(arguments=None):
    given = read_arguments(arguments)
    if given.threads:
        torch.set_num_threads(given.threads)
    result = {"surroundings": pairs.surroundings(given.device, given.pairs)}
    lines = [
        f"{given.in_features} -> {given.out_features}, {given.tokens} tokens, forward and backward pass, without bias."
    ]
    for name, dtype in TYPES.items():
        arms = [Arm(layer, dtype, given) for layer in LAYERS]
        result[name] = pairs.measure(arms, given.pairs, given.warm_up)
        lines += ["", f"{name}:", "", *pairs.table(result[name], [("seconds", "seconds", ".4f")])]
    lines += ["", pairs.how_measured(result["surroundings"])]
    pairs.write(given.output, result, "\n".join(lines) + "\n")
    return result


if __name__ == "__main__":
    main()
