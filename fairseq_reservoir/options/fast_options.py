"""The flag ``--fast`` of all our models."""

from dataclasses import dataclass

from .flags import Flags, option


@dataclass
class FastOptions(Flags):
    """The flag of all our models that changes how they are trained. The models stay the same."""

    fast: bool = option(
        False,
        "train the same model with fewer passes: dropout uses a fast random number generator, on a CPU the loss is computed only for "
        "tokens that are not padding, attention and Adam run in one kernel each. Losses differ by rounding, and with dropout also by "
        "other random numbers. The log and fairseq-reservoir plan list the active parts. Checkpoints do not depend on the flag",
    )
