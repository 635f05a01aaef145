"""Translate text with an export and CTranslate2, without torch."""

import math
import os
from collections.abc import Callable, Sequence
from typing import Any

from ...errors import InputError
from ...options.translation_defaults import BATCH_SIZE, BEAM, LENPEN, MAX_LEN_B, SPLIT_ABOVE
from ...text.pieces import Pieces
from ...text.translated_lines import Hypothesis, PartHypothesis, translate_lines
from .. import export_file
from ..text_of_export import text_of_export
from .cache import model_folder
from .conversion import PositionLimits

PACKAGE = "ctranslate2"
_NOT_TEXT = ("<s>", "<pad>", "</s>")
_SMALLEST = 1e-12
# CTranslate2 takes less time in batches of this size than in the larger batches of translate_lines.
_SMALL_BATCHES: dict[str, Any] = {"max_batch_size": 1024, "batch_type": "tokens"}


def open_translator(path: str, int8: bool = False) -> "CT2Translator":
    """Open the translator of an export.

    Raises:
        InputError: the file is not usable.
        CannotConvert: CTranslate2 cannot represent the model of the file.
    """
    try:
        return CT2Translator(path, int8)
    except (InputError, OSError):
        raise
    except Exception as error:  # a description that this plugin did not write may lack any entry
        reason = f"{type(error).__name__}: {' '.join(str(error).split())[:80]}"
        raise InputError(f"{path}: not usable for CTranslate2 ({reason})") from error


class CT2Translator:
    """Translator of an export. Up to rounding, ``hypotheses`` returns the same hypotheses as ``fairseq-generate``.

    If the scores of two hypotheses differ by less than the rounding error, their order may change. If a translation is cut short at
    ``max_len_b``, its score does not include the end of sentence.

    Args:
        path: path of the export.
        int8: multiply in 8 bits. This is faster than in float32, but changes the scores.

    Raises:
        InputError: the file is not usable, or CTranslate2 cannot represent the model of the file.
    """

    def __init__(self, path: str, int8: bool = False) -> None:
        import ctranslate2

        text = text_of_export(path)
        self.pieces = Pieces(text, path)
        self.limits = PositionLimits.of_export(export_file.read_body(path))
        precision = "int8" if int8 else "float32"
        threads = _threads()
        self.engine = f"CTranslate2 {ctranslate2.__version__}, {precision}, {threads} thread{'s' * (threads > 1)}"
        with model_folder(path, text) as folder:
            self._translator: Any = ctranslate2.Translator(
                str(folder),
                device="cpu",
                compute_type=precision,
                inter_threads=1,
                intra_threads=threads,
            )

    def hypotheses(
        self,
        lines: Sequence[str],
        beam: int = BEAM,
        nbest: int = 1,
        lenpen: float = LENPEN,
        max_len_b: int = MAX_LEN_B,
        batch_size: int = BATCH_SIZE,
        split_above: int = SPLIT_ABOVE,
        after_batch: Callable[[int], None] | None = None,
    ) -> list[list[Hypothesis]]:
        """Return the best translations of each line. The arguments are those of ``checkpoint.translator.Translator.hypotheses``.

        Raises:
            InputError: ``nbest`` is larger than ``beam``.
        """
        if nbest > beam:
            raise InputError(f"nbest {nbest}: must be at most beam ({beam})")
        most = min(max_len_b, self.longest_target())

        def translate(batch: list[Sequence[str]]) -> list[list[PartHypothesis]]:
            sources = [list(symbols) for symbols in batch]
            results = self._translator.translate_batch(
                sources,
                beam_size=beam,
                num_hypotheses=beam,
                length_penalty=lenpen,
                max_decoding_length=most,
                max_input_length=0,
                return_scores=True,
                **_SMALL_BATCHES,
            )
            not_empty = self._log_not_empty(sources)
            return [self._best(*found, nbest, lenpen, most) for found in zip(results, not_empty)]

        split = min(split_above, self.longest_source())
        return translate_lines(lines, self.pieces, translate, split, batch_size, after_batch)

    def _log_not_empty(self, sources: list[list[str]]) -> list[float]:
        """For each source, return the log-probability that the first token of the translation is not the end of sentence.

        Neither fairseq nor CTranslate2 allows an empty translation. Only CTranslate2 divides the probabilities of the first token by this
        probability.
        """
        results = self._translator.score_batch(sources, [[] for _ in sources], max_input_length=0, **_SMALL_BATCHES)
        return [math.log1p(-min(math.exp(result.log_probs[0]), 1 - _SMALLEST)) for result in results]

    def _best(self, result: Any, not_empty: float, nbest: int, lenpen: float, most: int) -> list[PartHypothesis]:
        """Return the ``nbest`` hypotheses with the highest scores. The scores are those of fairseq."""
        found = []
        for symbols, score in zip(result.hypotheses, result.scores):
            is_cut = len(symbols) >= most
            # CTranslate2 has no end of sentence after a translation of the maximum length.
            length = len(symbols) if is_cut else len(symbols) + 1
            found.append((score + not_empty / length**lenpen, symbols, is_cut))
        found.sort(key=lambda hypothesis: -hypothesis[0])
        return [
            PartHypothesis(self._text(symbols), len(symbols) + 1, score, is_cut)
            for score, symbols, is_cut in found[:nbest]
        ]

    def _text(self, symbols: list[str]) -> str:
        return self.pieces.join([symbol for symbol in symbols if symbol not in _NOT_TEXT])

    def longest_source(self) -> int:
        """Return the maximum number of source tokens, without the end of sentence."""
        return max(1, self.limits.max_source_positions - 1)

    def longest_target(self) -> int:
        """Return the model's maximum number of tokens in a translation, without the end of sentence. ``max_len_b`` is not considered."""
        return max(1, self.limits.max_target_positions - 1)


def _threads() -> int:
    """Number of threads: OMP_NUM_THREADS, or all usable processors."""
    given = os.environ.get("OMP_NUM_THREADS", "")
    if given.isascii() and given.isdecimal() and int(given):
        return int(given)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
