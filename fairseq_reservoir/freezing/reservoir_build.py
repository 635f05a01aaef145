"""Freezes and initialises a built model and attaches its slot table, before any optimizer exists."""

from fairseq.models.transformer import TransformerDecoderBase

from ..errors import InputError
from ..layers.adapted_linear import AdaptedLinear
from ..layers.fast_dropout import use_fast_dropout
from ..layers.frozen_dtype import DTYPES, frozen_layers, use_dtype
from ..layers.quant_noise import spare_frozen
from ..masks.masked_embedding import MaskedEmbedding, TiedProjection
from ..masks.masked_linear import MaskedLinear
from ..masks.rounded_weight import RoundedEmbedding, SharedLinear
from ..options.layer_options import FrozenLayerOptions
from ..plan.flops import Flow
from ..plan.freeze_spec import FROZEN_INITS, TABLES, plain
from ..plan.layer_plan import Plans, layers_kept
from ..plan.slot_table import SlotTable, compile_table
from ..random_tensors.fill import component_recipe, fill, recipe
from ..random_tensors.philox import GENERATOR
from .backskips import add_backskips
from .frozen_adapters import adapt, shared_matrices

COMPONENT_FLAGS = {
    "freeze": "--freeze",
    "freeze_except": "--freeze-except",
    "frozen_init": "--frozen-init",
    "frozen_adapter": "--frozen-adapter",
    "frozen_adapter_rank": "--frozen-adapter-rank",
    "frozen_adapter_scale": "--frozen-adapter-scale",
    "frozen_seed": "--reservoir-seed",
}
RESUME_FLAGS = {
    **COMPONENT_FLAGS,
    "train_layernorm": "--reservoir-train-layernorm",
}


def description_flags(stacks) -> dict[str, str]:
    """The fields of the description of a model with layer plans, each with its flag; see ``DescribedInCheckpoint``."""
    return {
        **{stack: f"--reservoir-{stack}" for stack in stacks},
        "seed": "--reservoir-seed",
        "generator": "generator of frozen tensors",
        "norm": "--reservoir-norm",
        "kernel_sizes": "--reservoir-kernel-sizes",
        "kinds": "the kind of layer",
    }


def finish_reservoir(model, plans: Plans, options):
    """Makes a freshly built model one of ours: what is frozen, its values, slot table, recipes, description; returns it.

    Args:
        model: a ``DescribedInCheckpoint`` with fairseq's initial values.
        plans: the layers it was built of.
        options: its complete options.
    """
    model.slot_table = freeze_and_fill(model, plans.built, options)
    if options.frozen_dtype != "fp32":
        _use_frozen_dtype(model, plans.built, options)
    if options.backskip:
        add_backskips(model, plans.built, options)
    if options.reservoir_fast_dropout:
        use_fast_dropout(model)
    model.remember_description(_description(plans.unpruned, options), kept_layers(options))
    return model


def _use_frozen_dtype(model, stacks, options):
    layers = list(frozen_layers(model, stacks))
    if not layers:
        raise InputError(f"--frozen-dtype {options.frozen_dtype}: has no effect, since no layer is wholly frozen")
    for _, layer in layers:
        use_dtype(layer, DTYPES[options.frozen_dtype])


def _description(plans, options):
    frozen = any(slot.frozen for stack in plans.values() for slot in stack)
    random = any(slot.random for stack in plans.values() for slot in stack)
    kinds = {slot.kind for stack in plans.values() for slot in stack}

    def unusual(name, matters):
        """The option's value if it is not the default and the plan has layers that it changes."""
        value = getattr(options, name)
        return value if matters and value != FrozenLayerOptions.__dataclass_fields__[name].default else None

    return {
        **{stack: "".join(slot.letter for slot in plan) for stack, plan in plans.items()},
        "seed": options.reservoir_seed if random else None,
        "generator": GENERATOR if random else None,
        "norm": unusual("reservoir_norm", any(kind.own_norm for kind in kinds)),
        "kernel_sizes": unusual("reservoir_kernel_sizes", any(kind.kernel_sizes for kind in kinds)),
        **component_description(options),
        "train_layernorm": unusual("reservoir_train_layernorm", frozen),
        **_own_kinds(plans),
    }


def _own_kinds(plans):
    """The letters that stand for kinds of a user's own, with their names."""
    own = {slot.letter: slot.kind.name for stack in plans.values() for slot in stack if slot.kind.registered_by}
    return {"kinds": ", ".join(f"{letter} {name}" for letter, name in sorted(own.items()))} if own else {}


def component_description(options) -> dict:
    """The fields of a model's description that say which components are frozen, at what, and what adapts them."""
    drawn = options.frozen_init not in ("model", "diagonal", "zero") or options.frozen_adapter == "vera"
    adapter = {
        "frozen_adapter": options.frozen_adapter,
        "frozen_adapter_rank": options.frozen_adapter_rank,
        "frozen_adapter_scale": options.frozen_adapter_scale or None,
    }
    return {
        "freeze": options.freeze,
        "freeze_except": options.freeze_except,
        "frozen_init": None if options.frozen_init == "model" else options.frozen_init,
        "frozen_seed": options.reservoir_seed if drawn else None,
        **(adapter if options.frozen_adapter else {}),
    }


def freeze_and_fill(model, plans, options) -> SlotTable:
    """Freezes what is frozen, adds its adapters, draws what is drawn by name (``model.recipes``); returns the slot table.

    What has a recipe already is left as it is, so that this may be called again when the model has got another head.

    Args:
        model: a model with fairseq's initial values.
        plans: the slots of each stack.
        options: the model's options, for the freeze spec, the adapters and the seed.
    """
    table = _compile_and_freeze(model, plans, options)
    if options.frozen_adapter:
        adapt(model, table, options.frozen_adapter, options.frozen_adapter_rank, options.frozen_adapter_scale)
        table = _compile_and_freeze(model, plans, options)
    parameters = dict(model.named_parameters())
    shapes = {name: tuple(p.shape) for name, p in parameters.items()}
    known = getattr(model, "recipes", {})
    new = {e.name: _recipe(e, model, shapes) for e in table.entries if e.random_name and e.name not in known}
    fill(parameters, new, table.seed)
    model.recipes = known | new
    return table


def _recipe(entry, model, shapes):
    if entry.frozen_init is None:
        return recipe(entry.name, entry.random_name, shapes)
    module = model.get_submodule(entry.name.rpartition(".")[0])
    return component_recipe(
        FROZEN_INITS[entry.frozen_init],
        entry.name,
        entry.random_name,
        shapes,
        table=entry.atom in TABLES,
        padding=getattr(module, "padding_idx", None),
    )


def _compile_and_freeze(model, plans, options) -> SlotTable:
    parameters = dict(model.named_parameters())
    table = table_of(
        model,
        plans,
        options.reservoir_seed,
        freeze=options.freeze,
        freeze_except=options.freeze_except,
        frozen_init=options.frozen_init,
        train_layernorm=getattr(options, "reservoir_train_layernorm", False),
        untrained=[name for name, p in parameters.items() if not p.requires_grad],
        shared=shared_matrices(model) if options.frozen_adapter else (),
        more_follows=bool(options.frozen_adapter) or hasattr(model, "register_classification_head"),
        kept=kept_layers(options),
    )
    for entry in table.entries:
        if not entry.trained and entry.name in parameters:
            parameters[entry.name].requires_grad_(False)
    spare_frozen(model)
    return table


def table_of(model, plans, seed: int, **choices) -> SlotTable:
    """The slot table of a built model; ``choices`` are further arguments of ``compile_table``."""
    parameters = dict(model.named_parameters())
    shapes = [(name, p.shape) for name, p in parameters.items()]
    return compile_table(shapes, plans, seed, aliases=tied_names(model, parameters), flow=flow_of(model), **choices)


def kept_layers(options) -> dict[str, str]:
    """By stack, the layers that ``--encoder-layers-to-keep`` and ``--decoder-layers-to-keep`` leave, if they are given: "0,2".

    Raises:
        InputError: they name a layer twice, or one that the stack does not have.
    """
    kept = {}
    for stack in ("encoder", "decoder"):
        given, depth = (getattr(options, f"{stack}_{what}", None) for what in ("layers_to_keep", "layers"))
        if given and depth:  # a language model has no encoder
            layers = layers_kept(given, depth, f"--{stack}-layers-to-keep")
            kept[stack] = ",".join(map(str, layers))
    return kept


def tied_names(model, parameters) -> dict[str, tuple[str, tuple[int, ...]]]:
    """The further names of tied parameters: name -> (owner's name, shape); of an embedding behind a mask, the scores are tied.

    Of what is rounded, the latent weights are: of an embedding, and of the matrices that layers share.
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
    """What is learned of the weight of a module that has none of its own, or None; and the shape of the weight."""
    if isinstance(module, SharedLinear):
        return module.owner.latent, module.owner.weight_shape
    if isinstance(module, TiedProjection) and isinstance(module.embedding, RoundedEmbedding):
        return module.embedding.latent, module.embedding.weight_shape
    return (module.embedding.scores, module.embedding.weight_shape) if _is_masked_tie(module) else (None, ())


def _is_masked_tie(module):
    return isinstance(module, TiedProjection) and isinstance(module.embedding, MaskedEmbedding)


def flow_of(model) -> Flow:
    """The ``Flow`` of a model: all of its forward pass that names and shapes of parameters do not say."""
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
        with_adapter_added=frozenset(
            f"{n}.weight" for n, m in modules.items() if isinstance(m, AdaptedLinear) and not m.apart
        ),
        source_unread=alone and hasattr(model, "encoder") and not both,
        source_and_target=both,
    )


def _behind_masks(modules):
    """(name of its scores, shape) of every random matrix that a mask makes a linear layer of."""
    for name, module in modules.items():
        if isinstance(module, MaskedLinear):
            yield f"{name}.scores", tuple(module.weight_shape)
        elif _is_masked_tie(module):
            yield f"{name}.weight", tuple(module.embedding.weight_shape)
