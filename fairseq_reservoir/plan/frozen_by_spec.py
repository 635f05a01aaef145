"""Resolve ``--freeze`` and ``--freeze-except`` to parameter names, in pruned and unpruned models."""

from ..errors import InputError
from . import freeze_spec

Aliases = dict[str, tuple[str, tuple[int, ...]]]


class Pruning:
    """Map parameter names of a pruned model to the names in the unpruned model.

    Args:
        kept: stack -> numbers of its kept layers, such as ``{"encoder": "0,2"}``.
    """

    def __init__(self, kept: dict[str, str]) -> None:
        self.kept = {stack: sorted(map(int, layers.split(","))) for stack, layers in kept.items() if layers}

    def __bool__(self) -> bool:
        return bool(self.kept)

    def unpruned(self, name: str) -> str:
        """Return the name of the parameter ``name`` in the unpruned model."""
        place = freeze_spec.layer_of(name)
        if place is None or place[0] not in self.kept:
            return name
        stack, layer = place
        return name.replace(f".layers.{layer}.", f".layers.{self.kept[stack][layer]}.", 1)


def frozen_by_spec(
    names: list[str], aliases: Aliases, freeze: str | None, freeze_except: str | None, pruning: Pruning
) -> set[str]:
    """Return the names of the parameters that the specs freeze. A spec may use any name of a tied parameter.

    Raises:
        InputError: ``--freeze`` and ``--freeze-except`` have no parameter in common, or no parameter is frozen.
    """
    owner_of = {pruning.unpruned(name): name for name in names} | {
        pruning.unpruned(alias): owner for alias, (owner, _) in aliases.items()
    }

    def owners(spec: str, flag: str, keeps_trained: bool = False) -> set[str]:
        return {owner_of[n] for n in freeze_spec.selected(spec, owner_of, flag, keeps_trained, bool(pruning))}

    frozen = owners(freeze, "--freeze") if freeze else set(names) if freeze_except else set()
    kept_trained = owners(freeze_except, "--freeze-except", keeps_trained=True) if freeze_except else set()
    if freeze and freeze_except and not frozen & kept_trained and not pruning:
        raise InputError(
            f"--freeze-except {freeze_except}: does not overlap with --freeze {freeze}; remove one of them"
        )
    frozen -= kept_trained
    if not frozen and (freeze or freeze_except) and not pruning:
        raise InputError(f"{given_specs(freeze, freeze_except)} freezes nothing; change or remove it")
    return frozen


def given_specs(freeze: str | None, freeze_except: str | None) -> str:
    """Format the given specs for a message, each with its flag."""
    return " ".join(
        f"{flag} {spec}" for flag, spec in (("--freeze", freeze), ("--freeze-except", freeze_except)) if spec
    )
