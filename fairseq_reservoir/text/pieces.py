"""Convert text into symbols of a model's dictionary and back: lower case, Moses' tokenizer and subword pieces."""

from collections.abc import Callable, Sequence
from typing import Any

from ..errors import InputError, optional_package
from .byte_pairs import BytePairs
from .parts import TextParts

_SPECIAL = ("<s>", "<pad>", "</s>")
_WORD_BEGINS, _WORD_CONTINUES = "\u2581", "@@"


class Pieces:
    """Converter from text to dictionary symbols, and from translated symbols to text. Text is split like the training data.

    Args:
        text: the tokenizer, subword model and dictionaries, as an export stores them.
        name: name of the export, for error messages.

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
        """Split a line of text into symbols. Some symbols may be missing in the dictionary.

        White space at both ends is removed first, as in ``fairseq-interactive``. A blank line has no symbols.
        """
        line = line.strip()
        if self._lowercase:
            line = line.lower()
        return self.cut_tokens(self._tokenize(line) if self._tokenize else line)

    def cut_tokens(self, line: str) -> list[str]:
        """Split a tokenized line into symbols. A piece is split at any white space in it, as in fairseq's ``tokenize_line``.

        A word that is a special symbol of fairseq, such as ``</s>``, becomes the unknown word, so it does not end the sentence.
        """
        symbols = " ".join(self._cut_words(line)).split()
        return ["<unk>" if symbol in _SPECIAL else symbol for symbol in symbols]

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
    """Moses' tokenizer and detokenizer with the settings of fairseq's ``--tokenizer moses``; (None, None) if text is not tokenized."""
    if not text.tokenizer:
        return None, None
    sacremoses = optional_package("sacremoses", f"{name}: its text parts need")
    source, target = text.languages
    tokenize, detokenize = sacremoses.MosesTokenizer(source).tokenize, sacremoses.MosesDetokenizer(target).detokenize
    return (
        lambda line: tokenize(line, aggressive_dash_splits=text.dash_splits, return_str=True, escape=True),
        lambda line: detokenize(line.split()),
    )


def _sentencepiece(model: bytes, name: str) -> Callable[[str], list[str]]:
    processor = optional_package("sentencepiece", f"{name}: its text parts need").SentencePieceProcessor()
    try:
        processor.LoadFromSerializedProto(model)
        size: int = processor.GetPieceSize()
    except (RuntimeError, ValueError) as error:
        raise InputError(f"{name}: not a SentencePiece model ({' '.join(str(error).split())[:80]})") from error
    if not size:
        raise InputError(f"{name}: a SentencePiece model without pieces")
    return lambda line: processor.EncodeAsPieces(line)
