"""Convert text into symbols of a model's dictionary and back: lower case, Moses' tokenizer and subword pieces."""

from collections.abc import Callable, Sequence
from typing import Any

from ..errors import InputError
from .byte_pairs import BytePairs
from .parts import TextParts

_WORD_BEGINS, _WORD_CONTINUES = "\u2581", "@@"


class Pieces:
    """Converter that splits text into symbols of a dictionary, as for training, and joins the symbols of a translation into text.

    Args:
        text: the text parts.
        name: name of the file that contains them, for error messages.

    Raises:
        InputError: a package is not installed, or the SentencePiece model or BPE codes are invalid.
    """

    def __init__(self, text: TextParts, name: str) -> None:
        self._kind, self._lowercase = text.kind, text.lowercase
        self._tokenize, self._detokenize = _tokenizer(text, name)
        if text.kind == "sentencepiece":
            self._cut_words: Callable[[str], Sequence[str]] = _sentencepiece(text.model, name)
        elif text.kind == "byte_pairs":
            self._cut_words = BytePairs(text.model, name).cut_line
        else:
            self._cut_words = str.split

    def cut(self, line: str) -> list[str]:
        """Split a line of text into symbols. A blank line has no symbols. The dictionary may lack some of the symbols.

        White space at both ends is removed first, as in ``fairseq-interactive``.
        """
        line = line.strip()
        if self._lowercase:
            line = line.lower()
        return self.cut_tokens(self._tokenize(line) if self._tokenize else line)

    def cut_tokens(self, line: str) -> list[str]:
        """Split a tokenized line into symbols.

        A symbol has no white space. A piece with white space is therefore split there, as in fairseq's ``tokenize_line``.
        """
        return " ".join(self._cut_words(line)).split()

    def join(self, symbols: Sequence[str]) -> str:
        """Join symbols into text, as fairseq's ``--remove-bpe`` does, and detokenize it."""
        tokens = self.join_tokens(symbols)
        return self._detokenize(tokens) if self._detokenize else tokens

    def join_tokens(self, symbols: Sequence[str]) -> str:
        """Join symbols into tokenized text."""
        if self._kind == "sentencepiece":
            return "".join(symbols).replace(_WORD_BEGINS, " ").strip()
        line = " ".join(symbols)
        return (line + " ").replace(_WORD_CONTINUES + " ", "").rstrip() if self._kind == "byte_pairs" else line

    def begins_a_word(self, symbols: Sequence[str], i: int) -> bool:
        """Whether ``symbols[i]`` begins a word, so that a line can be split before it."""
        if self._kind == "sentencepiece":
            return symbols[i].startswith(_WORD_BEGINS)
        return self._kind == "words" or not symbols[i - 1].endswith(_WORD_CONTINUES)


def _tokenizer(text: TextParts, name: str) -> tuple[Any, Any]:
    """Moses' tokenizer and detokenizer with the settings of fairseq's ``--tokenizer moses``, or (None, None)."""
    if not text.tokenizer:
        return None, None
    try:
        from sacremoses import MosesDetokenizer, MosesTokenizer
    except ImportError as error:
        raise InputError(f"{name}: its text parts need the package sacremoses: pip install sacremoses") from error
    source, target = text.languages
    tokenize, detokenize = MosesTokenizer(source).tokenize, MosesDetokenizer(target).detokenize
    return (
        lambda line: tokenize(line, aggressive_dash_splits=text.dash_splits, return_str=True, escape=True),
        lambda line: detokenize(line.split()),
    )


def _sentencepiece(model: bytes, name: str) -> Callable[[str], list[str]]:
    try:
        import sentencepiece
    except ImportError as error:
        raise InputError(f"{name}: its text parts need the package sentencepiece: pip install sentencepiece") from error
    processor = sentencepiece.SentencePieceProcessor()
    try:
        processor.LoadFromSerializedProto(model)
        size: int = processor.GetPieceSize()
    except (RuntimeError, ValueError) as error:
        raise InputError(f"{name}: not a SentencePiece model ({' '.join(str(error).split())[:80]})") from error
    if not size:
        raise InputError(f"{name}: a SentencePiece model without pieces")
    return lambda line: processor.EncodeAsPieces(line)
