"""The flag ``--fast`` of all our models."""

from dataclasses import dataclass

from .flags import Flags, option


@dataclass
class FastOptions(Flags):
    """The flag of all our models that changes their training and not the models."""

    fast: bool = option(
        False,
        "train the same model with fewer passes: dropout takes its random numbers from a fast generator, the loss on a CPU is computed "
        "for real tokens only, attention and Adam run in one kernel each. Losses differ by rounding, and with dropout by other random "
        "numbers. The log and fairseq-reservoir plan list the parts that are on; checkpoints do not depend on it",
    )
