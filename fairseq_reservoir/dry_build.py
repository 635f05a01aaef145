"""Models built without data and without memory for their tensors, to look at names, shapes and what is frozen."""

import torch
from fairseq import models, options
from fairseq.data import Dictionary
from fairseq.dataclass.utils import convert_namespace_to_omegaconf

from .errors import InputError
from .slot_table import compile_table


def build_arch(arch: str, fairseq_flags: list[str], source_words: int, target_words: int):
    """A model of an architecture, on the device ``meta``; fairseq's own get a ``slot_table`` too.

    Args:
        arch: a registered architecture.
        fairseq_flags: flags of fairseq-train.
        source_words, target_words: dictionary sizes; a joined dictionary (--share-all-embeddings) has ``source_words``.

    Raises:
        InputError: the architecture is unknown, or its flags contradict each other.
    """
    if arch not in models.ARCH_MODEL_REGISTRY:
        ours = sorted(name for name in models.ARCH_MODEL_REGISTRY if "reservoir" in name or "supermask" in name)
        raise InputError(f"--arch {arch}: unknown; the plugin's own are {', '.join(ours)}")
    model_class = models.ARCH_MODEL_REGISTRY[arch]
    if not issubclass(model_class, models.FairseqEncoderDecoderModel):
        raise InputError(f"--arch {arch}: only translation models, with an encoder and a decoder, can be built without data")
    special = Dictionary().nspecial
    for flag, words in (("--source-words", source_words), ("--target-words", target_words)):
        if words <= special:
            raise InputError(f"{flag} {words}: must be more than fairseq's {special} special symbols")
    parser = options.get_training_parser()
    args = options.parse_args_and_arch(parser, input_args=["no-data", "--arch", arch, *fairseq_flags])
    model = build_config(convert_namespace_to_omegaconf(args).model, source_words, target_words)
    if not hasattr(model, "slot_table"):
        model.slot_table = compile_table([(n, p.shape) for n, p in model.named_parameters()], plans={}, seed=args.seed)
    return model


def build_config(config, source_words: int, target_words: int, device: str = "meta"):
    """A model of fairseq's model configuration."""
    with torch.device(device):
        return models.build_model(config, _NoTask(source_words, target_words, config))


class _NoTask:
    """As much of a translation task as a model needs to be built."""

    def __init__(self, source_words, target_words, config):
        self.args = self.cfg = config
        self.source_dictionary = _dictionary(source_words)
        joined = getattr(config, "share_all_embeddings", False)
        self.target_dictionary = self.source_dictionary if joined else _dictionary(target_words)


def _dictionary(words):
    dictionary = Dictionary()
    for i in range(words - len(dictionary)):
        dictionary.add_symbol(f"word{i}")
    return dictionary
