"""The allowed texts of options with fixed choices."""

from dataclasses import fields


def choices_of(options: type) -> dict[str, tuple[str, ...]]:
    """Map the name of each option with fixed choices to its allowed texts."""
    rules = {one.name: one.metadata["rules"] for one in fields(options) if "rules" in one.metadata}
    return {name: rule.choices for name, rule in rules.items() if rule.choices}
