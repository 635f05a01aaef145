"""Collect the text parts of an export (dictionaries and subword model) from flags. Check the subword model on sentences of the data."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from fairseq.data import Dictionary, data_utils, indexed_dataset
from fairseq.tasks.translation import TranslationTask

from ..errors import InputError
from ..files import check_file
from .parts import MOST_BYTES, TOKENIZERS, TextParts, find_invalid_symbol
from .pieces import Pieces

_CHECKED_SENTENCES = 200
_SPLITS = ("valid", "test", "train")


@dataclass(frozen=True)
class TextFlags:
    """Flags of ``fairseq-reservoir export`` that add text parts."""

    with_text: bool = False
    sentencepiece_model: str | None = None
    bpe_codes: str | None = None
    tokenizer: str | None = None
    moses_no_dash_splits: bool = False
    lowercase: bool = False

    @property
    def given(self) -> bool:
        """Whether any of the flags is set, so that the export has text parts."""
        return any(vars(self).values())

    @property
    def pieces_flag(self) -> str:
        """Flag and file of the subword model, for messages; ``--with-text`` if there is none."""
        if self.sentencepiece_model:
            return f"--sentencepiece-model {self.sentencepiece_model}"
        return f"--bpe-codes {self.bpe_codes}" if self.bpe_codes else "--with-text"


def check_flags(flags: TextFlags) -> bytes:
    """Refuse contradictory flags and missing files, before a checkpoint is read.

    Returns:
        The contents of the SentencePiece model or BPE codes; b"" if neither is given.

    Raises:
        InputError: flags contradict each other, or a file is missing or too large.
    """
    if flags.sentencepiece_model and flags.bpe_codes:
        raise InputError(
            "--sentencepiece-model --bpe-codes: the data was split into pieces with only one of them; remove the other"
        )
    if flags.tokenizer and flags.tokenizer not in TOKENIZERS:
        raise InputError(f"--tokenizer {flags.tokenizer}: choose from {', '.join(TOKENIZERS)}")
    if flags.moses_no_dash_splits and not flags.tokenizer:
        raise InputError("--moses-no-dash-splits: needs --tokenizer moses")
    if not (path := flags.sentencepiece_model or flags.bpe_codes):
        return b""
    check_file(flags.pieces_flag.partition(" ")[0], path)
    if Path(path).stat().st_size > MOST_BYTES:
        raise InputError(
            f"{flags.pieces_flag}: has {Path(path).stat().st_size:,} bytes; an export can store at most {MOST_BYTES:,}"
        )
    return Path(path).read_bytes()


def collect(flags: TextFlags, model: bytes, task: Any) -> TextParts:
    """Build the text parts of an export from its flags.

    Args:
        flags: text flags, at least one of them set.
        model: the bytes returned by ``check_flags``.
        task: fairseq's task with the dictionaries.

    Raises:
        InputError: the task is not ``translation``, or the subword model does not fit the dictionaries or the data.
    """
    if type(task) is not TranslationTask:
        raise InputError(f"--with-text: needs a model of the task translation; this model has {type(task).__name__}")
    text = TextParts(
        languages=(task.cfg.source_lang, task.cfg.target_lang),
        source=_symbols(task.source_dictionary, flags),
        target=_symbols(task.target_dictionary, flags),
        kind="sentencepiece" if flags.sentencepiece_model else "byte_pairs" if flags.bpe_codes else "words",
        model=model,
        tokenizer=flags.tokenizer or "",
        dash_splits=not flags.moses_no_dash_splits,
        lowercase=flags.lowercase,
    )
    _check_pieces(flags, text, task)
    return text


def _symbols(dictionary: Dictionary, flags: TextFlags) -> tuple[str, ...]:
    """Return the symbols of a dictionary without fairseq's special symbols."""
    special = Dictionary().symbols
    if dictionary.symbols[: len(special)] != special or dictionary.nspecial != len(special):
        raise InputError(
            "--with-text: the special symbols of this task's dictionaries differ from fairseq's; remove the flag"
        )
    if invalid := find_invalid_symbol(dictionary.symbols):
        symbol, reason = invalid
        raise InputError(
            f"{flags.pieces_flag}: a dictionary has the symbol {symbol!r}{reason}; remove --with-text and the flags of the subword model"
        )
    return tuple(dictionary.symbols[len(special) :])


def _check_pieces(flags: TextFlags, text: TextParts, task: Any) -> None:
    """Refuse a subword model that was not used to prepare the data.

    The symbols of each sentence are joined into text, and the text is split again. The right subword model restores nearly all sentences.
    If no subword model is given, the dictionary and the data must not have subword pieces.
    """
    if text.kind == "words":
        for share, mark, flag in ((0.1, "\u2581", "--sentencepiece-model"), (0.05, "@@", "--bpe-codes")):
            found = [symbol for symbol in text.source if mark in (symbol[:1], symbol[-2:])]
            if len(found) > share * len(text.source):
                raise InputError(
                    f"--with-text: the dictionary has pieces such as {found[-1]}; give {flag} FILE, the file that split words into pieces"
                )
        _check_no_pieces(task)
        return
    pieces = Pieces(text, flags.pieces_flag)
    symbols, right, checked = set(text.source), 0, 0
    for split, sentence in islice(_sentences(task), _CHECKED_SENTENCES):
        checked += 1
        right += pieces.cut_tokens(pieces.join_tokens(sentence)) == sentence
    if checked and 2 * right < checked:
        raise InputError(
            f"{flags.pieces_flag}: restores the pieces of only {right} of {checked} sentences of {task.cfg.data} ({split});"
            " give the file that was used to prepare these data"
        )
    if not checked and not symbols & set(pieces.cut_tokens(pieces.join_tokens(text.source[: 10 * _CHECKED_SENTENCES]))):
        raise InputError(
            f"{flags.pieces_flag}: no subword piece of this file is in the dictionary in {task.cfg.data}; "
            "give the file that was used to prepare these data"
        )


def _check_no_pieces(task: Any) -> None:
    """Refuse data if more than 2 % of the sentences have BPE pieces. A few words may end in ``@@`` by chance."""
    found, checked = [], 0
    for _, sentence in islice(_sentences(task), _CHECKED_SENTENCES):
        checked += 1
        found += [symbol for symbol in sentence[:-1] if symbol.endswith("@@")][:1]
    if len(found) > max(1, 0.02 * checked):
        raise InputError(
            f"--with-text: {len(found)} of {checked} sentences of {task.cfg.data} have pieces such as {found[-1]}; give --bpe-codes"
            " FILE, the file that split words into pieces"
        )


def _sentences(task: Any) -> Iterator[tuple[str, list[str]]]:
    """Yield (split, symbols) for the source sentences without unknown words, from the first of ``_SPLITS`` that exists."""
    source, target, dictionary = task.cfg.source_lang, task.cfg.target_lang, task.source_dictionary
    for split in _SPLITS:
        for pair in (f"{source}-{target}", f"{target}-{source}"):
            prefix = str(Path(task.cfg.data.split(":")[0], f"{split}.{pair}.{source}"))
            if indexed_dataset.dataset_exists(prefix, impl=None):
                sentences = data_utils.load_indexed_dataset(prefix, dictionary)
                for i in range(len(sentences)):
                    ids = [token for token in sentences[i].tolist() if token != dictionary.eos()]
                    if ids and dictionary.unk() not in ids:
                        yield split, [dictionary[token] for token in ids]
                return
