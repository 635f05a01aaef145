"""One flag: a field of a dataclass, and its name on the command line."""

from dataclasses import field


def option(default, help_text, metavar=""):
    return field(default=default, metadata={"help": help_text, "metavar": metavar})


def flag_of(name: str) -> str:
    """The flag of an option: ``mask_pin`` -> ``--mask-pin``."""
    return "--" + name.replace("_", "-")
