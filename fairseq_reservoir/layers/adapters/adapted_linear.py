"""Frozen linear layers with a trained adapter: LoRA or VeRA."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Device = torch.device | str | None

# LoRA's alpha. The matrix D has the factor alpha / rank, so that the same learning rate suits every rank.
ALPHA = 16
# Initial value of VeRA's vector d.
FIRST_D = 0.1


class AdaptedLinear(nn.Linear):
    """Linear layer with an adapter: y = x (g W + D)^T + c; x: (..., in), y: (..., out).

    W and c are the weight and the bias of ``linear``. D is the matrix of ``adapter``. The scalar g is the adapter's parameter
    ``gain``, initially 1. Without this parameter, g is always 1. If W and c are frozen, only the adapter and g are trained.

    The attribute ``weight`` is g W + D, but ``weight`` in the state dict is W. fairseq's attention reads the attribute.
    ``AdaptedAttention`` calls the layer instead, because a call is cheaper.

    Args:
        linear: the layer to replace. Its parameters are reused.
        adapter: a ``LowRank`` or a ``ScaledProjections``.
        scaled: whether to train g.
    """

    def __init__(self, linear: nn.Linear, adapter: "LowRank | ScaledProjections", scaled: bool = False) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = linear.in_features, linear.out_features
        weight: Any = linear.weight
        self.register_parameter("weight", weight)
        self.register_parameter("bias", linear.bias)
        self.frozen_adapter: LowRank | ScaledProjections = adapter
        if scaled:
            adapter.gain = nn.Parameter(torch.ones(1, device=weight.device))
        # Separate products with W and D avoid the gradient of a whole matrix. For a high rank, one product with g W + D is cheaper.
        self.apart = 3 * adapter.rank * (self.in_features + self.out_features) < self.in_features * self.out_features

    def __getattr__(self, name: str) -> Any:
        value: Any = super().__getattr__(name)
        if name != "weight":
            return value
        gain = self.frozen_adapter.gain
        return (value if gain is None else gain * value) + self.frozen_adapter.matrix()

    def forward(self, x: Tensor) -> Tensor:
        if not self.apart:
            return F.linear(x, self.weight, self.bias)
        weight: Any = self._parameters["weight"]
        change: Tensor = self.frozen_adapter(x)
        gain = self.frozen_adapter.gain
        if gain is None:
            return F.linear(x, weight, self.bias) + change
        y = gain * F.linear(x, weight) + change
        return y if self.bias is None else y + self.bias

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> None:
        """If a state dict lacks this layer's adapter or gain, add them before it is loaded. fairseq calls this method."""
        add_if_all_missing(state_dict, f"{name}.frozen_adapter.", self.frozen_adapter)
        if self.frozen_adapter.gain is not None:
            state_dict.setdefault(f"{name}.frozen_adapter.gain", self.frozen_adapter.gain.detach())

    @torch.no_grad()
    def merged(self) -> nn.Linear:
        """Return an ordinary linear layer with the matrix g W + D, for inference."""
        plain = nn.Linear(self.in_features, self.out_features, device="meta")  # draws no random numbers
        plain.weight = nn.Parameter(self.weight)
        plain.bias = self.bias
        return plain.train(self.training)


class LowRank(nn.Module):
    """LoRA (Hu et al., 2021): D = (alpha / r) B A with rank r and trained matrices A (r, in) and B (out, r). B is initially 0."""

    gain: nn.Parameter | None

    def __init__(self, out_features: int, in_features: int, rank: int, device: Device = None) -> None:
        super().__init__()
        self.register_parameter("gain", None)
        self.A = nn.Parameter(torch.empty(rank, in_features, device=device))
        self.B = nn.Parameter(torch.zeros(out_features, rank, device=device))
        self.rank, self.scale = rank, ALPHA / rank

    def forward(self, x: Tensor) -> Tensor:
        return self.scale * F.linear(F.linear(x, self.A), self.B)

    def matrix(self) -> Tensor:
        """Return D (out, in)."""
        return self.scale * (self.B @ self.A)


class ScaledProjections(nn.Module):
    """VeRA (Kopiczko et al., 2024): D = diag(b) B diag(d) A with rank r.

    The matrices A (r, in) and B (out, r) are random, frozen and stored in ``shared``. The vectors b (out) and d (r) are trained.
    b is initially 0.
    """

    gain: nn.Parameter | None

    def __init__(
        self, out_features: int, in_features: int, rank: int, shared: "SharedProjections", device: Device = None
    ) -> None:
        super().__init__()
        self.register_parameter("gain", None)
        self.d = nn.Parameter(torch.full((rank,), FIRST_D, device=device))
        self.b = nn.Parameter(torch.zeros(out_features, device=device))
        self.rank = rank
        self._shared = (shared,)  # the tuple keeps torch from registering a submodule
        self._key = shared.add(out_features, in_features, rank, device)

    def forward(self, x: Tensor) -> Tensor:
        A, B = self._shared[0].pair(self._key)
        return self.b * F.linear(self.d * F.linear(x, A), B)

    def matrix(self) -> Tensor:
        """Return D (out, in)."""
        A, B = self._shared[0].pair(self._key)
        return self.b[:, None] * (B @ (self.d[:, None] * A))


class SharedProjections(nn.Module):
    """Frozen matrices A (r, in) and B (out, r) of all ``ScaledProjections`` of a model, one pair for each shape (out, in).

    ``users`` maps the key of each pair to the number of adapters that use the pair.
    """

    def __init__(self) -> None:
        super().__init__()
        self.users: dict[str, int] = {}

    def add(self, out_features: int, in_features: int, rank: int, device: Device = None) -> str:
        """Register an adapter for a matrix of this shape. Create the shape's pair A, B if it is missing. Return the pair's key."""
        key = f"{out_features}x{in_features}"
        if key not in self.users:
            self.register_buffer(f"A_{key}", torch.empty(rank, in_features, device=device))
            self.register_buffer(f"B_{key}", torch.empty(out_features, rank, device=device))
        self.users[key] = self.users.get(key, 0) + 1
        return key

    def pair(self, key: str) -> tuple[Tensor, Tensor]:
        return getattr(self, f"A_{key}"), getattr(self, f"B_{key}")

    def upgrade_state_dict_named(self, state_dict: dict[str, Tensor], name: str) -> None:
        add_if_all_missing(state_dict, f"{name}.", self)


def add_if_all_missing(state_dict: dict[str, Tensor], prefix: str, module: nn.Module) -> None:
    """If no name in ``state_dict`` starts with ``prefix``, add the state of ``module`` in place."""
    if not any(key.startswith(prefix) for key in state_dict):
        state_dict.update({prefix + key: value for key, value in module.state_dict().items()})
