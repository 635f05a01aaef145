"""Compile the slot table of a built model from its parameters (names, shapes, ties) and from properties of its forward pass."""

from fairseq.models.transformer import TransformerDecoderBase

from ..layers.adapters.adapted_linear import AdaptedLinear
from ..masks.masked_embedding import MaskedEmbedding, TiedProjection
from ..masks.masked_linear import MaskedLinear
from ..masks.rounded_weight import RoundedEmbedding, SharedLinear
from ..plan.flops import Flow
from ..plan.freeze_spec import plain
from ..plan.slot_table import SlotTable, compile_table
from ..plan.table_inputs import FreezeChoices, ModelFacts


def table_of(model, plans, seed: int, choices: FreezeChoices = FreezeChoices(), **facts) -> SlotTable:
    """The slot table of a built model; ``facts`` are further ``ModelFacts``."""
    parameters = dict(model.named_parameters())
    shapes = [(name, p.shape) for name, p in parameters.items()]
    known = ModelFacts(aliases=tied_names(model, parameters), flow=flow_of(model), **facts)
    return compile_table(shapes, plans, seed, choices, known)


def tied_names(model, parameters) -> dict[str, tuple[str, tuple[int, ...]]]:
    """The further names of tied parameters: name -> (name of the parameter, shape).

    For a weight that is tied to a masked embedding, the parameter is the scores of the embedding. For a weight that is tied to a rounded
    embedding or shares a rounded matrix, the parameter is the trained matrix before rounding (``latent``).
    """
    owners = {id(p): name for name, p in parameters.items()}
    tied = {
        name: (owners[id(p)], tuple(p.shape))
        for name, p in model.named_parameters(remove_duplicate=False)
        if owners[id(p)] != name
    }
    for name, module in model.named_modules():
        learned, shape = _learned_elsewhere(module)
        if learned is not None:
            tied[f"{name}.weight"] = (owners[id(learned)], tuple(shape))
    return tied


def _learned_elsewhere(module):
    """For a module that uses another module's weight: (learned tensor of that weight, shape of the weight). Otherwise (None, ())."""
    if isinstance(module, SharedLinear):
        return module.owner.latent, module.owner.weight_shape
    if isinstance(module, TiedProjection) and isinstance(module.embedding, RoundedEmbedding):
        return module.embedding.latent, module.embedding.weight_shape
    return (module.embedding.scores, module.embedding.weight_shape) if _is_masked_tie(module) else (None, ())


def _is_masked_tie(module):
    return isinstance(module, TiedProjection) and isinstance(module.embedding, MaskedEmbedding)


def flow_of(model) -> Flow:
    """The ``Flow`` of a model: properties of its forward pass that do not follow from names and shapes of parameters."""
    modules = dict(model.named_modules())
    first = [
        name for name, m in modules.items() if getattr(m, "normalize_before", False) or getattr(m, "norm_first", False)
    ]
    decoder = getattr(model, "decoder", None)
    both = any(getattr(module, "cross_self_attention", False) for module in modules.values())
    alone = isinstance(decoder, TransformerDecoderBase) and not any(".encoder_attn" in name for name in modules)
    return Flow(
        norm_first=frozenset(".".join(plain(name).split(".")[:3]) for name in first),
        behind_masks=dict(_behind_masks(modules)),
        row_gains=dict(_row_gains(modules)),
        with_adapter_added=frozenset(
            f"{n}.weight" for n, m in modules.items() if isinstance(m, AdaptedLinear) and not m.apart
        ),
        source_unread=alone and hasattr(model, "encoder") and not both,
        source_and_target=both,
    )


def _behind_masks(modules):
    """Yield (name of the scores, shape) of every masked random matrix. A tied output projection has the name of its weight instead."""
    for name, module in modules.items():
        if isinstance(module, MaskedLinear):
            yield f"{name}.scores", tuple(module.weight_shape)
        elif _is_masked_tie(module):
            yield f"{name}.weight", tuple(module.embedding.weight_shape)


def _row_gains(modules):
    """Yield (name as in ``_behind_masks``, name of the row gain). A tied output projection has the row gain of its embedding."""
    names = {module: name for name, module in modules.items()}
    for name, module in modules.items():
        if isinstance(module, MaskedLinear) and module.row_gain is not None:
            yield f"{name}.scores", f"{name}.row_gain"
        elif _is_masked_tie(module) and module.embedding.row_gain is not None:
            yield f"{name}.weight", f"{names[module.embedding]}.row_gain"
