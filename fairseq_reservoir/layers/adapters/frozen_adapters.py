"""Add adapters to the frozen matrices of a model, and draw their initial values."""

from collections.abc import Iterator

from fairseq.modules import MultiheadAttention
from torch import nn

from ...errors import InputError
from ...plan.freeze_spec import GROUPS, plain
from ...plan.slot_table import SlotTable
from ...random_tensors.fill import fill
from ...random_tensors.recipe import Recipe
from ..replace import adopt, replace_modules
from .adapted_attention import AdaptedAttention
from .adapted_linear import AdaptedLinear, LowRank, ScaledProjections, SharedProjections

# Name of the adapter as a submodule of its layer. The model's submodule with the shared matrices of VeRA has the same name.
NAME = "frozen_adapter"
_ATOMS = (GROUPS["att"] | GROUPS["ffn"]) - GROUPS["mix"]


def adapt(model: nn.Module, table: SlotTable, kind: str, rank: int, scaled: bool = False) -> None:
    """Add adapters to all frozen matrices of attention and feed-forward blocks, in place. Existing adapters are kept.

    Random values depend only on the seed. Recipes of VeRA's shared matrices are added to ``model.recipes``.

    Args:
        model: a model with parameters frozen according to ``table``.
        table: the model's slot table, which lists its tensors and the frozen ones among them.
        kind: ``lora`` or ``vera``.
        rank: rank of every adapter.
        scaled: also train a scalar factor of every adapted matrix.

    Raises:
        InputError: no matrix of these blocks is frozen, ``rank`` exceeds the smaller side of a frozen matrix, or the module
            of a frozen matrix is not a plain ``nn.Linear``.
    """
    frozen = [e for e in table.entries if not e.trained and e.atom in _ATOMS and e.name.endswith(".weight")]
    if not frozen:
        raise InputError(
            f"--frozen-adapter {kind}: no matrix of attention or feed-forward blocks is frozen; freeze some with T or F in a plan,"
            " or with --freeze att,ffn"
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
                f"--frozen-adapter-rank {rank}: exceeds the smaller side of {entry.name}, {min(entry.shape)}"
            )
        further = {"device": linear.weight.device} | ({"shared": getattr(model, NAME)} if kind == "vera" else {})
        adapter = {"lora": LowRank, "vera": ScaledProjections}[kind](*entry.shape, rank, **further)
        if kind == "lora":
            # LoRA draws from U(-1 / sqrt(in), 1 / sqrt(in)): Kaiming's distribution divided by sqrt(6).
            name = f"{plain(place)}.{NAME}.A"
            fill(
                {name: adapter.A},
                {name: Recipe("kaiming_uniform", name, tuple(adapter.A.shape), scale=6**-0.5)},
                table.seed,
            )
        parent_name, _, attribute = place.rpartition(".")
        setattr(model.get_submodule(parent_name), attribute, AdaptedLinear(linear, adapter, scaled))
    replace_modules(model, _adapted_attention)
    buffers, recipes = dict(model.named_buffers()), getattr(model, "recipes", {})
    shared = [(name, shape) for name, shape, _ in shared_matrices(model) if name not in recipes]
    new = {name: Recipe("kaiming_uniform", name, shape) for name, shape in shared}
    fill(buffers, new, table.seed)
    model.recipes = recipes | new  # type: ignore[assignment]  # torch expects a tensor or a module


def _adapted_attention(module: nn.Module) -> nn.Module | None:
    """Return the ``AdaptedAttention`` for a fairseq attention with an adapter on a projection; None for other modules."""
    has_adapter = any(isinstance(child, AdaptedLinear) for child in module.children())
    return adopt(AdaptedAttention, module) if type(module) is MultiheadAttention and has_adapter else None


def merge_adapters(model: nn.Module) -> None:
    """Replace every adapted layer of a model by a plain linear layer with the same output, for inference."""
    replace_modules(model, lambda module: module.merged() if isinstance(module, AdaptedLinear) else None)


def shared_matrices(model: nn.Module) -> Iterator[tuple[str, tuple[int, ...], int]]:
    """Yield (name, shape, number of adapters) of each matrix that VeRA's adapters share."""
    shared = getattr(model, NAME, None)
    if shared is None:
        return
    for name, buffer in shared.named_buffers():
        yield f"{NAME}.{name}", tuple(buffer.shape), shared.users[name.partition("_")[2]]
