"""What becomes of a checkpoint: exports of seed, masks and trained tensors, and plain fairseq checkpoints.

Importing this, and ``read_state_dict``, needs torch and safetensors but not fairseq.
"""

from .reader import read_state_dict

__all__ = ["load_translator", "read_state_dict"]


def load_translator(path: str, data: str, **overrides):
    """An exported model, or a checkpoint, ready to translate: ``load_translator(path, data).translate("a sentence")``.

    Args:
        path: export or checkpoint.
        data: folder of the dictionaries.
        overrides: fairseq's options by name, such as ``tokenizer="moses"`` or ``bpe="sentencepiece"``.

    Returns:
        fairseq's ``GeneratorHubInterface``.

    Raises:
        InputError: the file is not usable, or the dictionaries are not those of the model.
    """
    from pathlib import Path

    from fairseq import hub_utils

    found = hub_utils.from_pretrained(str(Path(path).parent), Path(path).name, str(data), **overrides)
    return hub_utils.GeneratorHubInterface(found["args"], found["task"], found["models"])
