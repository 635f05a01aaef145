"""Add adapters to the frozen matrices of a model, and draw their initial values."""

from collections.abc import Iterator

from fairseq.modules import MultiheadAttention
from torch import nn

from ...errors import InputError
from ...plan.freeze_spec import GROUPS, plain
from ...plan.slot_table import SlotTable
from ...random_tensors.fill import draw, fill
from ...random_tensors.recipe import Recipe
from ..replace import adopt, replace_modules
from .adapted_attention import AdaptedAttention
from .adapted_linear import AdaptedLinear, LowRank, ScaledProjections, SharedProjections

# Name of two submodules: of the adapter in its layer, and of VeRA's shared matrices in the model.
NAME = "frozen_adapter"
_ATOMS = (GROUPS["att"] | GROUPS["ffn"]) - GROUPS["mix"]


def adapt(model: nn.Module, table: SlotTable, kind: str, rank: int, scaled: bool = False) -> None:
    """Add adapters to all frozen matrices of attention and feed-forward blocks, in place. Existing adapters are kept.

    Random values depend only on the seed. The recipes of VeRA's shared matrices are added to ``model.recipes``.

    Args:
        model: a model that is frozen according to ``table``.
        table: the model's slot table.
        kind: ``lora`` or ``vera``.
        rank: rank of every adapter.
        scaled: whether each adapter also trains a scalar that multiplies the frozen matrix.

    Raises:
        InputError: no matrix of attention or feed-forward blocks is frozen, ``rank`` exceeds the smaller dimension of a frozen matrix, or a
            frozen matrix is not the weight of a plain ``nn.Linear``.
    """
    frozen = [e for e in table.entries if not e.trained and e.atom in _ATOMS and e.name.endswith(".weight")]
    if not frozen:
        raise InputError(
            f"--frozen-adapter {kind}: no matrix of attention or feed-forward blocks is frozen; give --freeze att,ffn, or a plan "
            "with T or F"
        )
    if kind == "vera" and not hasattr(model, NAME):
        model.add_module(NAME, SharedProjections())
    for entry in frozen:
        place = entry.name.removesuffix(".weight")
        linear = model.get_submodule(place)
        if isinstance(linear, AdaptedLinear):
            continue
        if type(linear) is not nn.Linear or linear._forward_pre_hooks:
            raise InputError(
                f"--frozen-adapter {kind}: {place} is frozen but not an ordinary linear layer; remove --quant-noise-pq"
            )
        if rank > min(entry.shape):
            raise InputError(
                f"--frozen-adapter-rank {rank}: must be at most {min(entry.shape)}, the smaller dimension of {entry.name}"
            )
        (rows, columns), device = entry.shape, linear.weight.device
        adapter: LowRank | ScaledProjections
        if kind == "vera":
            adapter = ScaledProjections(rows, columns, rank, getattr(model, NAME), device)
        else:
            adapter = LowRank(rows, columns, rank, device)
            # LoRA draws from U(-1 / sqrt(in), 1 / sqrt(in)): Kaiming's distribution divided by sqrt(6).
            name = f"{plain(place)}.{NAME}.A"
            recipe = Recipe("kaiming_uniform", name, tuple(adapter.A.shape), scale=6**-0.5)
            fill({name: adapter.A}, {name: recipe}, table.seed)
        parent_name, _, attribute = place.rpartition(".")
        setattr(model.get_submodule(parent_name), attribute, AdaptedLinear(linear, adapter, scaled))
    replace_modules(model, _adapted_attention)
    known = getattr(model, "recipes", {})
    shared = {name: shape for name, shape, _ in shared_matrices(model) if name not in known}
    draw(model, {name: Recipe("kaiming_uniform", name, shape) for name, shape in shared.items()}, table.seed)


def _adapted_attention(module: nn.Module) -> nn.Module | None:
    """Return an ``AdaptedAttention`` if the module is fairseq's attention with an adapter on a projection. Otherwise return None."""
    has_adapter = any(isinstance(child, AdaptedLinear) for child in module.children())
    return adopt(AdaptedAttention, module) if type(module) is MultiheadAttention and has_adapter else None


def merge_adapters(model: nn.Module) -> None:
    """Replace every adapted layer of a model by an ordinary linear layer with the same outputs, for inference."""
    replace_modules(model, lambda module: module.merged() if isinstance(module, AdaptedLinear) else None)


def shared_matrices(model: nn.Module) -> Iterator[tuple[str, tuple[int, ...], int]]:
    """Yield (name, shape, number of adapters) of each matrix that VeRA's adapters share."""
    shared = getattr(model, NAME, None)
    if shared is None:
        return
    for name, buffer in shared.named_buffers():
        yield f"{NAME}.{name}", tuple(buffer.shape), shared.users[name.partition("_")[2]]
