"""Compile the slot table of a built model from its parameters (names, shapes, ties) and from facts about its forward pass."""

from fairseq.models.transformer import TransformerDecoderBase
from torch import nn

from ..layers.adapters.adapted_linear import AdaptedLinear
from ..layers.base import Slot
from ..masks.masked_embedding import MaskedEmbedding, TiedProjection
from ..masks.masked_linear import MaskedLinear
from ..masks.rounded_weight import RoundedEmbedding, SharedLinear
from ..plan.flops import Flow
from ..plan.freeze_spec import plain
from ..plan.slot_table import SlotTable, compile_table
from ..plan.table_inputs import FreezeChoices, ModelFacts


def table_of(model, plans, seed: int, choices: FreezeChoices = FreezeChoices(), **facts) -> SlotTable:
    """Compile the slot table of a built model. ``facts`` are additional fields of ``ModelFacts``."""
    parameters = dict(model.named_parameters())
    shapes = [(name, p.shape) for name, p in parameters.items()]
    known = ModelFacts(aliases=tied_names(model, parameters), flow=flow_of(model), **facts)
    return compile_table(shapes, plans, seed, choices, known)


def tied_names(model, parameters) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return the further names of tied parameters: further name -> (name of the parameter, shape).

    If a weight is tied to a masked embedding, its parameter is the embedding's ``scores``. If a weight is tied to a rounded embedding or
    shares a rounded matrix, its parameter is ``latent``, the matrix before rounding.
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
    """Return (learned tensor, shape) of a weight that the module takes from another module. Return (None, ()) if it has no such weight."""
    if _is_masked_tie(module):
        return module.embedding.scores, module.embedding.weight_shape
    if isinstance(module, TiedProjection) and isinstance(module.embedding, RoundedEmbedding):
        return module.embedding.latent, module.embedding.weight_shape
    return (module.owner.latent, module.owner.weight_shape) if isinstance(module, SharedLinear) else (None, ())


def _is_masked_tie(module):
    return isinstance(module, TiedProjection) and isinstance(module.embedding, MaskedEmbedding)


def flow_of(model) -> Flow:
    """Return the ``Flow`` of a model."""
    modules = dict(model.named_modules())
    first = [
        name for name, m in modules.items() if getattr(m, "normalize_before", False) or getattr(m, "norm_first", False)
    ]
    decoder = getattr(model, "decoder", None)
    both = any(getattr(module, "cross_self_attention", False) for module in modules.values())
    alone = isinstance(decoder, TransformerDecoderBase) and not any(".encoder_attn" in name for name in modules)
    masked = list(_masked_matrices(modules))
    return Flow(
        norm_first=frozenset(".".join(plain(name).split(".")[:3]) for name in first),
        behind_masks={name: tuple(matrix.weight_shape) for name, _, matrix in masked},
        row_gains={name: f"{owner}.row_gain" for name, owner, matrix in masked if matrix.row_gain is not None},
        with_adapter_added=frozenset(
            f"{n}.weight" for n, m in modules.items() if isinstance(m, AdaptedLinear) and not m.apart
        ),
        lookups=frozenset(f"{n}.weight" for n, m in modules.items() if isinstance(m, nn.Embedding)),
        first_sublayers=_first_sublayers(modules),
        source_unread=alone and hasattr(model, "encoder") and not both,
        source_and_target=both,
    )


def _first_sublayers(modules):
    """Return the first sublayer of each layer of this package or of a user that has a gain, as in ``Flow.first_sublayers``."""
    return {
        plain(name): plain(f"{name}.{next(iter(module._modules))}.")
        for name, module in modules.items()
        if isinstance(module, Slot) and module.rezero_gain is not None
    }


def _masked_matrices(modules):
    """Yield (name of the scores, name of the module, module) of every masked random matrix.

    A tied output projection is yielded too, with the name of its weight and with the embedding as its module.
    """
    names = {module: name for name, module in modules.items()}
    for name, module in modules.items():
        if isinstance(module, MaskedLinear):
            yield f"{name}.scores", name, module
        elif _is_masked_tie(module):
            yield f"{name}.weight", names[module.embedding], module.embedding
