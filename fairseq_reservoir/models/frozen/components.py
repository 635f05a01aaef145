"""``--arch frozen_A`` for every architecture A of fairseq: A with components frozen by ``--freeze`` and ``--freeze-except``."""

from argparse import Namespace
from dataclasses import make_dataclass

from fairseq.models import (
    ARCH_CONFIG_REGISTRY,
    ARCH_MODEL_INV_REGISTRY,
    MODEL_DATACLASS_REGISTRY,
    MODEL_REGISTRY,
    register_model,
    register_model_architecture,
)

from ...freezing.description import DescribedInCheckpoint
from ...freezing.heads import HeadsInTable
from ...freezing.reservoir_build import COMPONENT_FLAGS, component_description, freeze_and_fill, kept_layers
from ...layers.replace import adopt
from ...options.component_options import ComponentOptions, check_components
from ...options.fairseq_flags import ModelFlags
from ...options.fairseq_rules import refuse_command_line
from ...options.flags import check_ranges, check_texts
from ...options.for_fairseq.namespaces import as_namespace, fill_defaults, follow_seed, read_numbers
from ...options.for_fairseq.parser import add_flags
from ...options.number_rules import collect
from ...options.reading import read

PREFIX = "frozen_"


class FrozenComponents(DescribedInCheckpoint):
    """Mix-in that freezes components of a fairseq model. It must precede the model in the list of base classes.

    fairseq builds the model. Then the parameters that ``freeze`` and ``freeze_except`` select are frozen, and ``frozen_init`` sets
    their values. Without these flags, nothing changes. Source: Bogoychev, 2021, "Not all parameters are born equal".
    """

    resume_flags = COMPONENT_FLAGS

    @classmethod
    def build_model(cls, cfg, task):
        """Build fairseq's model and freeze its components.

        Raises:
            InputError: a freeze spec is invalid or matches nothing, all parameters are frozen, or ``frozen_init`` cannot draw the frozen
                tensors.
        """
        options = component_options(cfg)
        check_components(options)
        kept = kept_layers(options)
        for stack, layers in kept.items():
            setattr(cfg, f"{stack}_layers_to_keep", layers)  # as a string, which fairseq's models expect
        model = super().build_model(cfg, task)
        for stack in kept:
            # fairseq has replaced the depth in ``cfg`` by the number of kept layers. Restore it, because checkpoints store ``cfg``.
            setattr(cfg, f"{stack}_layers", vars(options)[f"{stack}_layers"])
        if type(model) is not cls:  # some models of fairseq construct a fixed class instead of ``cls``
            model = adopt(cls, model)
        model.component_options = options
        model.regenerate_weights = options.regenerate_weights
        model.slot_table = model.compile_slot_table()
        model.remember_description(component_description(options), kept)
        return model

    def compile_slot_table(self):
        return freeze_and_fill(self, {}, self.component_options)


class _Flags:
    """Mix-in that adds the flags of ``ComponentOptions`` to a model without a dataclass."""

    @classmethod
    def add_args(cls, parser):
        super().add_args(parser)
        for action in parser._actions:
            # fairseq evaluates the value as a list, and would raise SyntaxError for an invalid text.
            if action.dest.endswith("_layers_to_keep"):
                action.type = str
        add_flags(parser, ComponentOptions, delete_default=True)


def with_components(model: type, dataclass: type | None) -> tuple[type, type | None]:
    """Return a subclass of a fairseq model with ``ComponentOptions``, and a subclass of the model's dataclass if it has one."""
    heads = (HeadsInTable,) if hasattr(model, "register_classification_head") else ()
    flags = () if dataclass else (_Flags,)
    about = {
        "__module__": __name__,
        "__doc__": f"fairseq's ``{model.__name__}`` with frozen components, see ``FrozenComponents``.",
    }
    frozen = type(model)(f"Frozen{model.__name__}", (*heads, *flags, FrozenComponents, model), about)
    if dataclass:
        bases = (ComponentOptions, dataclass)
        dataclass = make_dataclass(f"Frozen{dataclass.__name__}", [], bases=bases, namespace={"__module__": __name__})
    return frozen, dataclass


def architecture(fairseq_architecture):
    """Wrap an architecture function of fairseq: add the defaults and checks of ``ComponentOptions``."""

    def fill(args):
        found = []
        with collect(found):
            read_numbers(args, ("reservoir_seed",))
        with collect(found):
            check_texts(args, ComponentOptions)
        with collect(found):
            check_ranges(args)
        if not found:  # fairseq's function may fail on invalid values
            fairseq_architecture(args)
        fill_defaults(args, ComponentOptions)
        follow_seed(args, "reservoir_seed")
        with collect(found):
            check_components(args)
        refuse_command_line(found, args)

    return fill


def component_options(cfg) -> Namespace:
    """Read ``ComponentOptions`` and ``ModelFlags`` from the options of a fairseq model."""
    return as_namespace(Namespace(**vars(read(ComponentOptions, cfg)) | vars(read(ModelFlags, cfg))))


def register_frozen() -> None:
    """Register all missing architectures ``frozen_A``. Call this again after a ``--user-dir`` has registered architectures A."""
    for name, architectures in list(ARCH_MODEL_INV_REGISTRY.items()):
        if issubclass(MODEL_REGISTRY[name], DescribedInCheckpoint) or PREFIX + name in MODEL_REGISTRY:
            continue  # models of this package have these flags already
        frozen, dataclass = with_components(MODEL_REGISTRY[name], MODEL_DATACLASS_REGISTRY.get(name))
        for made in filter(None, (frozen, dataclass)):
            globals().setdefault(made.__name__, made)  # pickle looks up classes by their names
        # With a dataclass, this also registers an architecture without checks.
        register_model(PREFIX + name, dataclass=dataclass)(frozen)
        for arch in list(architectures):
            fill = architecture(ARCH_CONFIG_REGISTRY[arch])
            if dataclass and arch == name:
                ARCH_CONFIG_REGISTRY[PREFIX + arch] = fill
            else:
                register_model_architecture(PREFIX + name, PREFIX + arch)(fill)


register_frozen()
