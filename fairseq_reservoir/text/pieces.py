"""Text as words of a model's dictionary, and back: lower case, Moses' tokenizer, pieces, each where the text parts name it."""

from collections.abc import Callable, Sequence
from typing import Any

from ..errors import InputError
from .byte_pairs import BytePairs
from .parts import TextParts

_WORD_BEGINS, _WORD_GOES_ON = "\u2581", "@@"


class Pieces:
    """Cuts text into the words of a dictionary as training data were cut, and joins what a model answers.

    Args:
        text: the text parts.
        name: of the file that they are from, for errors.

    Raises:
        InputError: a package is not installed, or the model of pieces is none.
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
        """A line of text as words of the dictionary, or unknown ones; none of a blank line.

        Blanks of any kind at the ends of the line are removed first, as ``fairseq-interactive`` removes them.
        """
        line = line.strip()
        if self._lowercase:
            line = line.lower()
        return self.cut_tokens(self._tokenize(line) if self._tokenize else line)

    def cut_tokens(self, line: str) -> list[str]:
        """The same of a line as the tokenizer leaves it.

        A dictionary's words hold no blanks, so ``split`` ends a word at any blank within a piece, as fairseq's ``tokenize_line`` does.
        """
        return " ".join(self._cut_words(line)).split()

    def join(self, words: Sequence[str]) -> str:
        """Words of the dictionary as text, as ``--remove-bpe`` of fairseq's commands joins them."""
        tokens = self.join_tokens(words)
        return self._detokenize(tokens) if self._detokenize else tokens

    def join_tokens(self, words: Sequence[str]) -> str:
        """The same, but for the tokenizer."""
        if self._kind == "sentencepiece":
            return "".join(words).replace(_WORD_BEGINS, " ").strip()
        line = " ".join(words)
        return (line + " ").replace(_WORD_GOES_ON + " ", "").rstrip() if self._kind == "byte_pairs" else line

    def begins_a_word(self, words: Sequence[str], i: int) -> bool:
        """Whether the text may be taken apart before ``words[i]``."""
        if self._kind == "sentencepiece":
            return words[i].startswith(_WORD_BEGINS)
        return self._kind == "words" or not words[i - 1].endswith(_WORD_GOES_ON)


def _tokenizer(text: TextParts, name: str) -> tuple[Any, Any]:
    """Moses' tokenizer and detokenizer with the settings of fairseq's ``--tokenizer moses``, or neither."""
    if not text.tokenizer:
        return None, None
    try:
        from sacremoses import MosesDetokenizer, MosesTokenizer
    except ImportError as error:
        raise InputError(f"{name}: its text needs the package sacremoses: pip install sacremoses") from error
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
        raise InputError(f"{name}: its text needs the package sentencepiece: pip install sentencepiece") from error
    processor = sentencepiece.SentencePieceProcessor()
    try:
        processor.LoadFromSerializedProto(model)
        size: int = processor.GetPieceSize()
    except (RuntimeError, ValueError) as error:
        raise InputError(f"{name}: not a SentencePiece model ({' '.join(str(error).split())[:80]})") from error
    if not size:
        raise InputError(f"{name}: a SentencePiece model without pieces")
    return lambda line: processor.EncodeAsPieces(line)
