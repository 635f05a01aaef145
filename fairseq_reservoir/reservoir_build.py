"""From a freshly built model to its slot table: what is frozen is frozen here, before any optimizer exists."""

from .modules.frozen_init import fill_frozen, recipe
from .slot_table import SlotTable, compile_table


def freeze_and_fill(model, plans, options) -> SlotTable:
    """Compiles the slot table of ``model``, sets every ``requires_grad`` from it and draws the reservoirs' tensors.

    ``model.recipes`` says afterwards how each of these was drawn, by name.

    Args:
        model: a model with fairseq's initial values.
        plans: the slots of each stack.
        options: the model's options, for the freeze spec and the seed.
    """
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
    random_names = {e.name: e.random_name for e in table.entries if e.random_name}
    fill_frozen(parameters, random_names, table.seed)
    shapes = {name: tuple(p.shape) for name, p in parameters.items()}
    model.recipes = {name: recipe(name, random_name, shapes) for name, random_name in random_names.items()}
    return table


def tied_names(model, parameters) -> dict[str, tuple[str, tuple[int, ...]]]:
    """The further names of tied parameters: name -> (owner's name, shape)."""
    owners = {id(p): name for name, p in parameters.items()}
    return {
        name: (owners[id(p)], tuple(p.shape))
        for name, p in model.named_parameters(remove_duplicate=False)
        if owners[id(p)] != name
    }
