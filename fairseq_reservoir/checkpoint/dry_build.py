"""Build models on the meta device. Building them needs neither data nor memory for tensors.

A built model has the names and shapes of its tensors, but no values. Its slot table contains the state of each layer, such as trained or
frozen.
"""

from argparse import Namespace
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from fairseq import models, options
from fairseq.data import Dictionary
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from omegaconf.errors import OmegaConfBaseException

from ..errors import InputError, in_one_line
from ..fairseq_repairs.flag_errors import NO_DATA, raise_as_mistake
from ..fairseq_repairs.papers_flags import answer_for_architecture
from ..freezing.table_of_model import table_of
from ..options.fairseq_flags import ModelFlags, TaskFlags
from ..options.reading import read
from .pretrained_embeddings import building_for_a_checkpoint
from .without_values import without_values

DEFAULT_WORDS = 10_000
_MOST_WORDS = 2**31 - 1  # fairseq stores token ids as int32
# Default task for each base class of models. The task adds its flags to the parser.
_TASKS = {
    models.FairseqEncoderDecoderModel: "translation",
    models.FairseqLanguageModel: "language_modeling",
    models.FairseqEncoderModel: "masked_lm",
}

# Exceptions that a model raises when it is built, if it needs more of its task than the dictionaries.
NEEDS_ITS_TASK = (AttributeError, AssertionError, ImportError, OmegaConfBaseException)

# Functions (model, flags, configuration) that return the lines about training flags for ``fairseq-reservoir plan``, or "".
notes: list[Callable[[Any, Any, Any], str]] = []


def build_arch(
    arch: str, fairseq_flags: list[str], source_words: int | None = None, target_words: int | None = None
) -> Any:
    """Build a model of an architecture on the meta device. The model gets the attributes ``flags``, ``configuration`` and ``slot_table``.

    Args:
        arch: name of a registered architecture: a translation model, a language model, or an encoder such as RoBERTa.
        fairseq_flags: flags of fairseq-train.
        source_words: size of the source dictionary or of the only dictionary (--share-all-embeddings, language models, encoders). The
            default is 10,000.
        target_words: size of the target dictionary. The default is 10,000.

    Raises:
        InputError: the architecture is unknown, a flag does not exist or has a value of the wrong type, or flags contradict each other.
    """
    task = _task_of(arch)
    if task != "translation" and target_words is not None:
        raise InputError(
            f"--target-words {target_words}: {arch} has only one dictionary; set its size with --source-words"
        )
    sizes = _sizes({"--source-words": source_words, "--target-words": target_words})
    if task != "translation":
        sizes["--target-words"] = sizes["--source-words"]
    parser = options.get_training_parser(default_task=task)
    line = [NO_DATA, "--arch", arch, *fairseq_flags]
    # argparse's own error prints all flags of fairseq.
    parser.error = partial(raise_as_mistake, command="fairseq-train", words=line)
    args = options.parse_args_and_arch(parser, input_args=line)
    if read(ModelFlags, args).share_all_embeddings and target_words not in (None, sizes["--source-words"]):
        raise InputError(
            f"--target-words {target_words}: with --share-all-embeddings there is only one dictionary; its size is --source-words"
            f" {sizes['--source-words']}"
        )
    try:
        configuration = convert_namespace_to_omegaconf(args)
        model = build_config(configuration.model, sizes["--source-words"], sizes["--target-words"])
        if classes := _classes(args):
            with torch.device("meta"):
                model.register_classification_head(*classes)
    except NEEDS_ITS_TASK as error:
        if isinstance(error, AttributeError) and isinstance(error.obj, (Namespace, _NoTask)):
            raise InputError(
                f"--arch {arch}: cannot be built without data, because it needs {error.name}, which the task reads from the data"
            ) from error
        reason = in_one_line(f"{type(error).__name__}: {error}")
        raise InputError(f"--arch {arch}: cannot be built with these flags alone: {reason}") from error
    model.flags, model.configuration = args, configuration
    if not hasattr(model, "slot_table"):
        model.slot_table = table_of(model, plans={}, seed=args.seed)
    return model


def _task_of(arch: str) -> str:
    """Return the task that builds an architecture. Refuse an unknown architecture, and one that needs data."""
    if arch not in models.ARCH_MODEL_REGISTRY:
        if answer := answer_for_architecture(arch):
            raise InputError(answer)
        ours = sorted(name for name in models.MODEL_REGISTRY if name.startswith(("reservoir", "supermask")))
        raise InputError(
            f"--arch {arch}: unknown; this plugin has {', '.join(ours)}, their presets, and frozen_ARCH for every fairseq architecture ARCH"
        )
    task = next((task for kind, task in _TASKS.items() if issubclass(models.ARCH_MODEL_REGISTRY[arch], kind)), None)
    if task is None:
        raise InputError(
            f"--arch {arch}: only translation models, language models and text encoders can be built without data"
        )
    return task


def _sizes(given: dict[str, int | None]) -> dict[str, int]:
    """Replace missing dictionary sizes by the default. Refuse sizes that no dictionary can have."""
    sizes = {flag: DEFAULT_WORDS if words is None else words for flag, words in given.items()}
    special = Dictionary().nspecial
    for flag, words in sizes.items():
        if words <= special:
            raise InputError(f"{flag} {words}: must be more than {special}, the number of fairseq's special symbols")
        if words > _MOST_WORDS:
            raise InputError(f"{flag} {words}: must be at most {_MOST_WORDS}")
    return sizes


def _classes(args: Any) -> tuple[str, int] | None:
    """Return (name, number of classes) of the classification head that the task adds to a RoBERTa; None if it adds no head."""
    if args.task in ("sentence_prediction", "sentence_prediction_adapters") and args.num_classes > 0:
        return read(TaskFlags, args).classification_head_name, args.num_classes
    if args.task == "sentence_ranking":
        return read(TaskFlags, args).ranking_head_name, 1
    return None


def build_config(config: Any, source_words: int, target_words: int, device: str = "meta") -> Any:
    """Build the model of a configuration. If the model has one dictionary, ``source_words`` and ``target_words`` must be equal."""
    values = without_values() if device == "meta" else nullcontext()
    with torch.device(device), values, building_for_a_checkpoint():
        return models.build_model(config, _NoTask(source_words, target_words, config))


class _NoTask:
    """Replacement for a task of fairseq. The replacement has dictionaries, but no data."""

    def __init__(self, source_words: int, target_words: int, config: Any) -> None:
        self.args = self.cfg = config
        self.source_dictionary = self.target_dictionary = self.dictionary = _CountedDictionary(source_words)
        if target_words != source_words and not read(ModelFlags, config).share_all_embeddings:
            self.target_dictionary = _CountedDictionary(target_words)
        self.output_dictionary = self.target_dictionary  # the name in language_modeling

    def max_positions(self) -> int:
        """Return the default maximum length of the task ``sentence_prediction``."""
        return 512


class _CountedDictionary(Dictionary):
    """A dictionary that reports a given size but contains only the special symbols, so that a large size needs no memory."""

    def __init__(self, words: int) -> None:
        super().__init__()
        self._words = max(words, len(self.symbols))

    def __len__(self) -> int:
        return self._words
