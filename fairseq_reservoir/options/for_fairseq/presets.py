"""Architecture functions of our models. They set the options of our preset and then of fairseq's preset, and check all options."""

from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY, register_model_architecture

from ..fairseq_rules import refuse_command_line
from ..flags import check_texts
from ..number_rules import collect
from ..plans import check, resolve
from ..supermask_options import check_mask_options
from .namespaces import fill_defaults, fill_in, follow_seed, read_numbers


def reservoir_preset(dataclass, depths: dict[str, int], fairseq_preset, **sizes):
    """Make an architecture function of a model with layer plans.

    Args:
        dataclass: the model's options.
        depths: default number of layers of each stack, if neither the user nor ``sizes`` sets this number.
        fairseq_preset: the architecture function of fairseq that sets the remaining options.
        sizes: the options that the preset sets.
    """
    stacks = {stack: sizes.get(f"{stack}_layers", depth) for stack, depth in depths.items()}

    def fill(args):
        found, plans = [], None
        with collect(found):
            read_numbers(args)
            plans = resolve(args, stacks)  # before the presets, because plans set depths
        _complete(args, dataclass, fairseq_preset, sizes, "reservoir_seed", found)
        with collect(found):
            check(args, plans)
        refuse_command_line(found, args)

    return fill


def supermask_preset(dataclass, depths: dict[str, int], fairseq_preset, **sizes):
    """Make an architecture function of a supermask model. The arguments are the same as for ``reservoir_preset``."""
    stacks = {f"{stack}_layers": depth for stack, depth in depths.items()}

    def fill(args):
        found = []
        with collect(found):
            read_numbers(args)
        _complete(args, dataclass, fairseq_preset, stacks | sizes, "mask_seed", found)
        with collect(found):
            check_mask_options(args)
        refuse_command_line(found, args)

    return fill


def _complete(args, dataclass, fairseq_preset, sizes, seed, found):
    """Fill in the options that the user has not given: first our preset, then fairseq's, then defaults. Add errors to ``found``."""
    with collect(found):
        check_texts(args, dataclass)
    fill_in(args, sizes)
    with collect(found):
        fairseq_preset(args)
    fill_defaults(args, dataclass)
    follow_seed(args, seed)


def register(model: str, presets: dict, default) -> None:
    """Register each preset as the architecture ``<model>_<name>``. Register the function ``default`` as the architecture ``<model>``."""
    for name, preset in presets.items():
        register_model_architecture(model, f"{model}_{name}")(preset)
    if model not in ARCH_MODEL_REGISTRY:
        register_model_architecture(model, model)(default)
    # For a model with a dataclass, fairseq registers a function without checks. Ours refuses bad values before data is loaded.
    ARCH_CONFIG_REGISTRY[model] = default
