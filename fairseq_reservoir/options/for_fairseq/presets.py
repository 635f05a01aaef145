"""Architecture functions of our models: the sizes of a preset, fairseq's own preset below it, and checks before any data is loaded."""

from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY, register_model_architecture

from ..flags import check_texts
from ..plans import check, settle
from ..supermask_options import check_mask_options
from .namespaces import fill_defaults, fill_in, follow_seed, read_numbers


def reservoir_preset(dataclass, depths: dict[str, int], fairseq_preset, **sizes):
    """An architecture function of a model with layer plans.

    Args:
        dataclass: the model's options.
        depths: layers of each stack it has, where neither the user nor ``sizes`` say.
        fairseq_preset: the architecture function of fairseq that sets what is left.
        sizes: options of the preset.
    """

    def fill(args):
        read_numbers(args)
        # First, since plans set depths.
        plans = settle(args, {stack: sizes.get(f"{stack}_layers", depth) for stack, depth in depths.items()})
        check_texts(args, dataclass)
        fill_in(args, sizes)
        fairseq_preset(args)
        fill_defaults(args, dataclass)
        follow_seed(args, "reservoir_seed")
        check(args, plans)

    return fill


def supermask_preset(dataclass, depths: dict[str, int], fairseq_preset, **sizes):
    """An architecture function of a supermask model; arguments as for ``reservoir_preset``."""

    def fill(args):
        read_numbers(args)
        check_texts(args, dataclass)
        fill_in(args, {f"{stack}_layers": depth for stack, depth in depths.items()} | sizes)
        fairseq_preset(args)
        fill_defaults(args, dataclass)
        follow_seed(args, "mask_seed")
        check_mask_options(args)

    return fill


def register(model: str, presets: dict, default) -> None:
    """Registers the architectures ``model`` + "_" + name of ``presets``, and ``default`` as that called like the model."""
    for name, preset in presets.items():
        register_model_architecture(model, f"{model}_{name}")(preset)
    if model not in ARCH_MODEL_REGISTRY:
        register_model_architecture(model, model)(default)
    # fairseq gives a model with a dataclass an architecture that checks nothing; ours refuses bad values before data is loaded.
    ARCH_CONFIG_REGISTRY[model] = default
