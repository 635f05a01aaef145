"""Translate text with an export that contains its dictionaries and subword model."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

import torch
from fairseq import checkpoint_utils
from fairseq.data import Dictionary, data_utils
from fairseq.dataclass.configs import GenerationConfig
from fairseq.hub_utils import GeneratorHubInterface
from fairseq.registry import REGISTRIES
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from omegaconf import OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from ..errors import InputError
from ..options import fairseq_rules
from ..options.number_rules import check as check_rules
from ..options.translation_defaults import BATCH_SIZE, BEAM, SPLIT_ABOVE
from ..text.parts import TextParts
from ..text.pieces import Pieces
from ..text.translated_lines import Hypothesis as Hypothesis, PartHypothesis, translate_lines
from . import damage, dictionaries, export_file
from .text_of_export import text_of_export

_PIECES = ("bpe", "tokenizer")  # fairseq's options that choose a subword model and a tokenizer
_GENERATION = {field.name for field in fields(GenerationConfig)}


class Translator(GeneratorHubInterface):
    """A ``GeneratorHubInterface`` of fairseq that translates plain text.

    Args:
        path: path of the export.
        text: the tokenizer, subword model and dictionaries that the export contains.
        overrides: options of the model's configuration by name. Options of generation are the defaults of ``translate``.

    Raises:
        InputError: the file is not usable, or its dictionaries do not fit the model, or an option of generation is out of range.
    """

    def __init__(self, path: str, text: TextParts, **overrides: Any) -> None:
        pieces = Pieces(text, path)
        options = {name: value for name, value in overrides.items() if name in _GENERATION}
        generation = _generation(options, BEAM, nbest=1)
        with damage.reading(path):
            body = export_file.read_body(path)
            task = task_of_text(body, text)
            dictionaries.check(path, body["dictionaries"], task, "in the file")
            models, found = checkpoint_utils.load_model_ensemble([path], arg_overrides=overrides, task=task)
            with open_dict(found):
                found.tokenizer = found.bpe = None  # self.pieces replaces both
                found.generation = generation
            super().__init__(found, task, models)
        self.pieces = pieces
        self._options = options

    def encode(self, sentence: str) -> torch.Tensor:
        """Return a sentence's token ids in the source dictionary, with the end of sentence."""
        return self._ids(self.pieces.cut(sentence))

    def decode(self, tokens: torch.Tensor) -> str:
        """Return the text of token ids in the target dictionary."""
        kept = [i for i in tokens.tolist() if i not in (self.tgt_dict.bos(), self.tgt_dict.pad(), self.tgt_dict.eos())]
        return self.pieces.join([self.tgt_dict[i] for i in kept])

    def translate(self, sentences: str | Sequence[str], beam: int = BEAM, **options: Any) -> str | list[str]:
        """Return the best translation of a sentence, or of each sentence in a list. A blank sentence has the translation "".

        Args:
            sentences: text of any length.
            beam: beam size.
            options: see ``hypotheses``.
        """
        lines = [sentences] if isinstance(sentences, str) else list(sentences)
        texts = [best[0].text for best in self.hypotheses(lines, beam, **options)]
        return texts[0] if isinstance(sentences, str) else texts

    def hypotheses(
        self,
        lines: Sequence[str],
        beam: int = BEAM,
        nbest: int = 1,
        batch_size: int = BATCH_SIZE,
        split_above: int = SPLIT_ABOVE,
        after_batch: Callable[[int], None] | None = None,
        **generation: Any,
    ) -> list[list[Hypothesis]]:
        """Return the best translations of each line.

        A line of more than ``split_above`` tokens is split into parts. A part ends at the end of a sentence if possible, or else at the end
        of a word. The first hypothesis consists of the best translations of all parts, the second hypothesis of the second-best
        translations, and so on.

        Args:
            lines: text.
            beam: beam size.
            nbest: number of hypotheses to return.
            batch_size: lines or parts per batch. Lines and parts are sorted by length before they are batched.
            split_above: maximum number of source tokens in a part. fairseq ends a translation after ``max_len_b`` tokens, by default 200.
            after_batch: called after each batch with the number of lines that this batch completed.
            generation: values of fairseq's generation options by name, such as ``lenpen``. They replace those given to ``load``.

        Raises:
            InputError: an option does not exist or is out of range.
        """
        check_numbers({"beam": beam, "nbest": nbest, "batch_size": batch_size, "split_above": split_above})
        if nbest > beam:
            raise InputError(f"nbest {nbest}: must be at most beam ({beam})")
        generation = {**self._options, **generation}
        with _in_range(generation):
            generator = self.task.build_generator(self.models, _generation(generation, beam, nbest))
        most = min(split_above, self.longest_source())

        def translate(batch: list[Sequence[str]]) -> list[list[PartHypothesis]]:
            with _in_range(generation):
                return self._translated(generator, [self._ids(symbols) for symbols in batch], nbest)

        return translate_lines(lines, self.pieces, translate, most, batch_size, after_batch)

    def _translated(self, generator: Any, sentences: list[torch.Tensor], nbest: int) -> list[list[PartHypothesis]]:
        """Return fairseq's best hypotheses of each sentence, without their large attention tensors."""
        source = data_utils.collate_tokens(sentences, self.src_dict.pad(), left_pad=self.task.cfg.left_pad_source)
        lengths = torch.tensor([len(words) for words in sentences])
        sample = {"net_input": {"src_tokens": source.to(self.device), "src_lengths": lengths.to(self.device)}}
        most = min(int(generator.max_len_a * source.shape[1] + generator.max_len_b), generator.max_len - 1)
        return [
            [
                PartHypothesis(
                    self.decode(best["tokens"]), len(best["tokens"]), float(best["score"]), len(best["tokens"]) > most
                )
                for best in found[:nbest]
            ]
            for found in self.task.inference_step(generator, self.models, sample)
        ]

    def _ids(self, words: Sequence[str]) -> torch.Tensor:
        return torch.tensor([*map(self.src_dict.index, words), self.src_dict.eos()])

    def longest_source(self) -> int:
        """Return the maximum number of source tokens, not counting the end of sentence."""
        positions = [self.task.max_positions()[0], *(model.max_positions()[0] for model in self.models)]
        return max(1, int(min(positions)) - 1)

    def longest_target(self) -> int:
        """Return the maximum number of target tokens that the model allows, not counting the end of sentence."""
        return max(1, int(min(model.max_decoder_positions() for model in self.models)) - 1)


def open_translator(path: str, **overrides: Any) -> Translator:
    """Open the translator of an export with text parts.

    Raises:
        InputError: the export has no text parts, or is not usable, or ``overrides`` names another tokenizer or subword model.
    """
    with damage.reading(path):
        text = text_of_export(path)
    _refuse_other_pieces(path, overrides)
    return Translator(str(path), text, **overrides)


def _refuse_other_pieces(path: str, overrides: dict[str, Any]) -> None:
    """Refuse options of fairseq's tokenizers and subword models, because the export's own are used."""
    configs = [config for choice in _PIECES for config in REGISTRIES[choice]["dataclass_registry"].values()]
    options = {field.name for config in configs for field in fields(config)} - vars(TranslationConfig()).keys()
    given = [name for name in (*_PIECES, *sorted(options)) if overrides.get(name)]
    if given:
        raise InputError(
            f"{given[0]} {overrides[given[0]]}: {path} contains its own tokenizer and subword model; remove {' and '.join(given)}, or add "
            "data=FOLDER with the folder of the dictionaries to use another one"
        )


def check_numbers(numbers: dict[str, Any]) -> None:
    """Refuse an option that is not a whole number of at least 1."""
    for name, number in numbers.items():
        if type(number) is not int or number < 1:
            raise InputError(f"{name} {number}: must be a whole number of at least 1")


def _generation(options: dict[str, Any], beam: int, nbest: int) -> Any:
    if unknown := sorted(options.keys() - _GENERATION):
        raise InputError(
            f"{unknown[0]}: fairseq's generation has no option of this name; examples of options are lenpen and max_len_b"
        )
    check_rules({"generation": {**options, "beam": beam, "nbest": nbest}}, fairseq_rules.GENERATION, called=str)
    for name in ("score_reference", "constraints"):
        if options.get(name):
            raise InputError(
                f"{name} {options[name]}: works only in fairseq-generate, because it needs references; remove this option"
            )
    try:
        return OmegaConf.merge(OmegaConf.structured(GenerationConfig()), {**options, "beam": beam, "nbest": nbest})
    except OmegaConfBaseException as error:
        raise InputError(f"{_shown(options)}: {str(error).splitlines()[0]}") from error


@contextmanager
def _in_range(options: dict[str, Any]) -> Iterator[None]:
    """Context manager for building fairseq's generator and for translating.

    If fairseq refuses a value, the InputError lists ``options``.
    """
    try:
        yield
    except (AssertionError, ValueError) as error:
        if not options or isinstance(error, InputError):
            raise
        raise InputError(f"{_shown(options)}: {' '.join(str(error).split()) or 'out of range'}") from error


def _shown(options: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in options.items())


def task_of_text(body: dict[str, Any], text: TextParts) -> TranslationTask:
    """Return a translation task with the dictionaries of an export."""
    return TranslationTask(_config(body, text), _dictionary(text.source), _dictionary(text.target))


def _dictionary(words: tuple[str, ...]) -> Dictionary:
    dictionary = Dictionary()
    for word in words:
        dictionary.add_symbol(word)
    return dictionary


def _config(body: dict[str, Any], text: TextParts) -> Any:
    """Return the configuration of a translation task, with those options of the export that affect translations."""
    described = body["config"]["task"]
    described = described.get("__namespace__", described)
    kept = ("left_pad_source", "max_source_positions", "max_target_positions")
    given = {name: described[name] for name in kept if name in described}
    source, target = text.languages
    return OmegaConf.merge(OmegaConf.structured(TranslationConfig(source_lang=source, target_lang=target)), given)
