"""The flag that lets a training start from a model with another dictionary."""

from dataclasses import dataclass

from .flags import Flags, option


@dataclass
class DictionaryOptions(Flags):
    """The flag of every training that starts from another model."""

    allow_other_dictionary: bool = option(
        False,
        "start from a model whose dictionary has as many entries as the dictionary of DATA, but other words or another order. Without "
        "the flag --finetune-from-model, --restore-file with --reset-optimizer, --start-encoder-from, --start-decoder-from and "
        "--mask-embeddings-from refuse it, because each word would start with the vector of another one. Give it if the vectors are to "
        "be learned again",
    )
