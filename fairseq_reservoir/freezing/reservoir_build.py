"""Freeze and initialise a built model and attach its slot table (``plan.slot_table``), before any optimizer exists."""

from collections.abc import Iterable
from typing import Any

from torch import nn

from ..errors import InputError
from ..layers.adapters.frozen_adapters import adapt, shared_matrices
from ..layers.backskip.in_model import add_backskips
from ..layers.fast_dropout import use_fast_dropout
from ..layers.frozen_dtype import DTYPES, frozen_layers, use_dtype
from ..layers.quant_noise import protect_frozen
from ..options.fairseq_flags import ModelFlags
from ..options.layer_options import FrozenLayerOptions
from ..options.reading import read
from ..options.speed_options import FastOptions
from ..plan.freeze_spec import BACKSKIPS, FROZEN_INITS, TABLES
from ..plan.layer_plan import Plans, layers_kept
from ..plan.slot_table import SlotTable
from ..plan.table_inputs import FreezeChoices
from ..random_tensors.fill import component_recipe, fill, reservoir_recipe
from ..random_tensors.philox import GENERATOR
from .table_of_model import table_of

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
    """Return the description fields of a model with layer plans: field -> flag, see ``DescribedInCheckpoint``."""
    return {
        **{stack: f"--reservoir-{stack}" for stack in stacks},
        "seed": "--reservoir-seed",
        "generator": "generator of frozen tensors",
        "norm": "--reservoir-norm",
        "kernel_sizes": "--reservoir-kernel-sizes",
        "kinds": "the kind of layer",
        "rezero": "--rezero",
    }


def finish_reservoir(model, plans: Plans, options):
    """Freeze and initialise a built model. Attach its slot table, the recipes for its random tensors and its description.

    Args:
        model: a ``DescribedInCheckpoint`` with fairseq's initial values.
        plans: the layer plans of the model.
        options: the model's complete options.

    Returns:
        The same model.
    """
    model.slot_table = freeze_and_fill(model, plans.built, options)
    if options.frozen_dtype != "fp32":
        _use_frozen_dtype(model, plans.built, options)
    if options.backskip:
        add_backskips(model, plans.built, options)
    if options.reservoir_fast_dropout:
        use_fast_dropout(model)
    model.regenerate_weights = read(FastOptions, options).regenerate_weights
    model.remember_description(_description(plans.unpruned, options), kept_layers(options))
    return model


def backskips_of(model) -> Iterable[Any]:
    """Return the ``Backskip`` modules of a model; none without ``--backskip``."""
    return getattr(model, BACKSKIPS, nn.ModuleDict()).values()


def _use_frozen_dtype(model, stacks, options):
    layers = list(frozen_layers(model, stacks))
    if not layers:
        raise InputError(
            f"--frozen-dtype {options.frozen_dtype}: has no effect, because no layer is wholly frozen; remove the flag"
        )
    for _, layer in layers:
        use_dtype(layer, DTYPES[options.frozen_dtype])


def _description(plans, options):
    frozen = any(slot.frozen for stack in plans.values() for slot in stack)
    random = any(slot.random for stack in plans.values() for slot in stack)
    kinds = {slot.kind for stack in plans.values() for slot in stack}

    def unusual(name, matters):
        """Return the option's value. Return None if it is the default or does not matter for the plan."""
        value = vars(options)[name]
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
        **({"rezero": True} if options.rezero else {}),
    }


def _own_kinds(plans):
    """Return the description field ``kinds``: the letters and names of user-defined kinds of layers; {} if the plans have none."""
    own = {slot.letter: slot.kind.name for stack in plans.values() for slot in stack if slot.kind.registered_by}
    return {"kinds": ", ".join(f"{letter} {name}" for letter, name in sorted(own.items()))} if own else {}


def component_description(options) -> dict:
    """Return the description fields of frozen components: the freeze specs, the initial values and the adapters."""
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
    """Freeze parameters, add adapters to frozen matrices, draw random tensors, and return the slot table.

    The recipes of the drawn tensors are added to ``model.recipes`` by name. Tensors that already have a recipe are not drawn again.
    Therefore this function can be called again after a head was added.

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
        return reservoir_recipe(entry.name, entry.random_name, shapes)
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
        FreezeChoices(
            options.freeze,
            options.freeze_except,
            options.frozen_init,
            train_layernorm=read(FrozenLayerOptions, options).reservoir_train_layernorm,
        ),
        untrained=[name for name, p in parameters.items() if not p.requires_grad],
        shared=shared_matrices(model) if options.frozen_adapter else (),
        more_follows=bool(options.frozen_adapter) or hasattr(model, "register_classification_head"),
        kept=kept_layers(options),
    )
    for entry in table.entries:
        if not entry.trained and entry.name in parameters:
            parameters[entry.name].requires_grad_(False)
    protect_frozen(model)
    return table


def kept_layers(options) -> dict[str, str]:
    """Return the kept layers of each pruned stack, from ``--encoder-layers-to-keep`` and ``--decoder-layers-to-keep``: stack -> "0,2".

    Raises:
        InputError: a flag contains a layer twice, or a layer that the stack does not have.
    """
    kept, flags = {}, read(ModelFlags, options)
    for stack, given, depth in (
        ("encoder", flags.encoder_layers_to_keep, flags.encoder_layers),
        ("decoder", flags.decoder_layers_to_keep, flags.decoder_layers),
    ):
        if given and depth:  # a language model has no encoder
            layers = layers_kept(given, depth, f"--{stack}-layers-to-keep")
            kept[stack] = ",".join(map(str, layers))
    return kept
