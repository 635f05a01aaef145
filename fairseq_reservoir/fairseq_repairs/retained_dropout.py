"""Repair of ``--retain-dropout-modules``, the names of the modules with dropout during inference."""

import re
from typing import Any

from fairseq.models import BaseFairseqModel
from fairseq.modules.fairseq_dropout import FairseqDropout

from ..errors import InputError
from .repair import repair, wrap

# Packages of fairseq's models and layers.
_FAIRSEQS = ("fairseq.models.", "fairseq.modules.")


@repair("retained-dropout")
def match_class_names():
    """Let ``--retain-dropout-modules`` find modules by the name of their class or of a base class.

    fairseq compares the flag's text with the exact class of each module. The names in its manual no longer match, because its layers are
    called TransformerEncoderLayerBase instead of TransformerEncoderLayer. Layers of this package are subclasses with other names.
    Without a match, dropout is off without a message. The repair ignores "Base" at the end of a name, and refuses a name without a module.
    """

    def make_generation_fast_(original, model, **kwargs):
        given = kwargs.get("retain_dropout_modules")
        if kwargs.get("retain_dropout") and given is not None:
            kwargs["retain_dropout_modules"] = _matching(model, given)
        return original(model, **kwargs)

    wrap(BaseFairseqModel, "make_generation_fast_", make_generation_fast_)


def _matching(model: Any, given: Any) -> list[str]:
    """Return the names of the dropout modules, as fairseq compares them, that belong to the modules in ``given``.

    ``given`` is a list of names, or a text such as ``["TransformerEncoder"]``. A name may be the class of a module without dropout, because
    fairseq's manual names ``TransformerModel``. Dropout modules without a ``module_name`` are left out, because fairseq cannot retain them.

    Raises:
        InputError: the model has no module of this name, or none of the modules has named dropout.
    """
    names = re.findall(r"\w+", given) if isinstance(given, str) else list(given)
    owners = {
        module: {child.module_name for child in module.children() if isinstance(child, FairseqDropout)} - {None}
        for module in model.modules()
    }
    known = {name for module in owners for name in _names(module)}
    wrong = next((name for name in names if name.removesuffix("Base") not in known), None)
    wanted = {name.removesuffix("Base") for name in names}
    found = {name for module, dropouts in owners.items() if wanted & _names(module) for name in dropouts}
    if wrong is not None or not found:
        choices = sorted({_shown(module) for module, dropouts in owners.items() if dropouts})
        if not choices:
            raise InputError(f"--retain-dropout-modules {given}: the model has no named dropout")
        problem = f"the model has no module {wrong}" if wrong is not None else "these modules have no named dropout"
        raise InputError(f"--retain-dropout-modules {given}: {problem}; choose from {', '.join(choices)}")
    return sorted(found)


def _names(module: Any) -> set[str]:
    """The names of a module's class and of its base classes."""
    return {kind.__name__.removesuffix("Base") for kind in type(module).__mro__}


def _shown(module: Any) -> str:
    """The name of fairseq's own class that the module is or inherits from. If there is none, the name of its class."""
    kinds = type(module).__mro__
    kind = next((kind for kind in kinds if kind.__module__.startswith(_FAIRSEQS)), kinds[0])
    return kind.__name__.removesuffix("Base")
