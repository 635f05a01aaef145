"""The flag ``--fast``, which every model of ours has."""

from dataclasses import dataclass

from fairseq.dataclass import FairseqDataclass

from .flags import option


@dataclass
class FastOptions(FairseqDataclass):
    """The flag of every model of ours that says how it is trained, and nothing of what it is."""

    fast: bool = option(
        False,
        "train the same model with fewer passes: random numbers of dropout from a fast generator, on a CPU the loss worked out only where "
        "a word counts, one kernel for attention and one for Adam. Losses differ by rounding, with dropout by other random numbers too. "
        "The log and fairseq-reservoir plan say what of it is on; checkpoints know nothing of it",
    )
