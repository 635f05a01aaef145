"""From a freshly built model to its slot table: what is frozen is frozen here, before any optimizer exists."""

from .layer_plan import Slot, slots
from .modules.frozen_init import fill_frozen, recipe
from .philox import GENERATOR
from .slot_table import SlotTable, compile_table
from .transformer_options import FrozenLayerOptions

RESUME_FLAGS = {
    "freeze": "--freeze",
    "freeze_except": "--freeze-except",
    "train_layernorm": "--reservoir-train-layernorm",
}


def identity_flags(stacks) -> dict[str, str]:
    """The fields of the identity of a model with layer plans, each with its flag; see ``CheckpointIdentity``."""
    return {
        **{stack: f"--reservoir-{stack}" for stack in stacks},
        "seed": "--reservoir-seed",
        "generator": "generator of frozen tensors",
        "norm": "--reservoir-norm",
        "kernel_sizes": "--reservoir-kernel-sizes",
    }


def plans_of(options, stacks) -> dict[str, tuple[Slot, ...]]:
    """The slots of each stack, as they are built: those that ``--encoder-layers-to-keep`` and the like leave."""
    return {
        stack: slots(
            getattr(options, f"reservoir_{stack}"), getattr(options, f"{stack}_layers_to_keep"), f"--{stack}-layers-to-keep"
        )
        for stack in stacks
    }


def complete(model, plans: dict[str, tuple[Slot, ...]], options):
    """Makes a freshly built model one of ours: what is frozen, its values, slot table, recipes, identity; returns it.

    Args:
        model: a ``CheckpointIdentity`` with fairseq's initial values.
        plans: the slots of each stack.
        options: its complete options.
    """
    model.slot_table = freeze_and_fill(model, plans, options)
    unpruned = {stack: slots(getattr(options, f"reservoir_{stack}")) for stack in plans}
    model.remember_identity(_identity(plans, options), _identity(unpruned, options))
    return model


def _identity(plans, options):
    frozen = any(slot.frozen for stack in plans.values() for slot in stack)
    random = any(slot.random for stack in plans.values() for slot in stack)
    kinds = {slot.kind for stack in plans.values() for slot in stack}

    def unusual(name, matters):
        """The option's value if it is not the default and the plan has layers that it changes."""
        value = getattr(options, name)
        return value if matters and value != FrozenLayerOptions.__dataclass_fields__[name].default else None

    return {
        **{stack: "".join(slot.letter for slot in plan) for stack, plan in plans.items()},
        "origins": {stack: [slot.origin for slot in plan] for stack, plan in plans.items()},
        "seed": options.reservoir_seed if random else None,
        "generator": GENERATOR if random else None,
        "norm": unusual("reservoir_norm", kinds & {"F", "G", "C"}),
        "kernel_sizes": unusual("reservoir_kernel_sizes", "C" in kinds),
        "freeze": options.freeze,
        "freeze_except": options.freeze_except,
        "train_layernorm": unusual("reservoir_train_layernorm", frozen),
    }


def freeze_and_fill(model, plans, options) -> SlotTable:
    """``compile_plan_table``, and the reservoirs' tensors are drawn: ``model.recipes`` says how, by their names.

    Args:
        model: a model with fairseq's initial values.
        plans: the slots of each stack.
        options: the model's options, for the freeze spec and the seed.
    """
    table = compile_plan_table(model, plans, options)
    parameters = dict(model.named_parameters())
    random_names = {e.name: e.random_name for e in table.entries if e.random_name}
    fill_frozen(parameters, random_names, table.seed)
    shapes = {name: tuple(p.shape) for name, p in parameters.items()}
    model.recipes = {name: recipe(name, random_name, shapes) for name, random_name in random_names.items()}
    return table


def compile_plan_table(model, plans, options) -> SlotTable:
    """The slot table of a model with layer plans; sets every ``requires_grad`` from it."""
    parameters = dict(model.named_parameters())
    table = compile_table(
        [(name, p.shape) for name, p in parameters.items()],
        plans,
        seed=options.reservoir_seed,
        freeze=options.freeze,
        freeze_except=options.freeze_except,
        train_layernorm=options.reservoir_train_layernorm,
        aliases=tied_names(model, parameters),
    )
    for entry in table.entries:
        parameters[entry.name].requires_grad_(entry.trained)
    return table


def tied_names(model, parameters) -> dict[str, tuple[str, tuple[int, ...]]]:
    """The further names of tied parameters: name -> (owner's name, shape)."""
    owners = {id(p): name for name, p in parameters.items()}
    return {
        name: (owners[id(p)], tuple(p.shape))
        for name, p in model.named_parameters(remove_duplicate=False)
        if owners[id(p)] != name
    }
