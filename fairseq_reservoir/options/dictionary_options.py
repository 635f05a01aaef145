"""The flag that lets a training start from a model with another dictionary."""

from dataclasses import dataclass

from .flags import Flags, option


@dataclass
class DictionaryOptions(Flags):
    """The flag of every training that starts from another model."""

    allow_other_dictionary: bool = option(
        False,
        "allow a start from a model whose dictionary has as many entries as that of DATA, but other words or another order. "
        "Without this flag, --finetune-from-model, --restore-file with --reset-optimizer, --start-encoder-from, --start-decoder-from and "
        "--mask-embeddings-from refuse such a model, because each word would start with the vector of another word. Use the flag if the "
        "vectors will be trained again",
    )
