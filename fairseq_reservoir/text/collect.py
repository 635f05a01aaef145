"""The text parts of an export, from flags and the data that a model was trained on, tried on some of its sentences."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from itertools import islice
from pathlib import Path
from typing import Any

from fairseq.data import Dictionary, data_utils, indexed_dataset
from fairseq.tasks.translation import TranslationTask

from ..errors import InputError
from ..files import check_file
from .parts import MOST_BYTES, TOKENIZERS, TextParts, unfit_word
from .pieces import Pieces

_TRIED = 200  # sentences
_SPLITS = ("valid", "test", "train")


@dataclass(frozen=True)
class TextFlags:
    """The flags of ``export`` that are about text."""

    with_text: bool = False
    sentencepiece_model: str | None = None
    bpe_codes: str | None = None
    tokenizer: str | None = None
    moses_no_dash_splits: bool = False
    lowercase: bool = False

    @property
    def given(self) -> bool:
        """Whether the export is to carry text: any of them says so."""
        return any(getattr(self, field.name) for field in fields(self))

    @property
    def of_pieces(self) -> str:
        """The flag that names a file of pieces, with the file; or the one of words."""
        if self.sentencepiece_model:
            return f"--sentencepiece-model {self.sentencepiece_model}"
        return f"--bpe-codes {self.bpe_codes}" if self.bpe_codes else "--with-text"


def check_flags(flags: TextFlags) -> bytes:
    """Refuses flags that contradict each other, and files that are not there, before a checkpoint is read.

    Returns:
        The contents of the file of pieces, if there is one.

    Raises:
        InputError: as said.
    """
    if flags.sentencepiece_model and flags.bpe_codes:
        raise InputError("--sentencepiece-model --bpe-codes: give the one that cut the data")
    if flags.tokenizer and flags.tokenizer not in TOKENIZERS:
        raise InputError(f"--tokenizer {flags.tokenizer}: choose from {', '.join(TOKENIZERS)}")
    if flags.moses_no_dash_splits and not flags.tokenizer:
        raise InputError("--moses-no-dash-splits: goes with --tokenizer moses")
    if not (path := flags.sentencepiece_model or flags.bpe_codes):
        return b""
    check_file(flags.of_pieces.partition(" ")[0], path)
    if Path(path).stat().st_size > MOST_BYTES:
        raise InputError(
            f"{flags.of_pieces}: {Path(path).stat().st_size:,} bytes; an export carries at most {MOST_BYTES:,}"
        )
    return Path(path).read_bytes()


def collect(flags: TextFlags, model: bytes, task: Any) -> TextParts:
    """The text parts that flags name.

    Args:
        flags: with which ``given``.
        model: as ``check_flags`` returned it.
        task: with the dictionaries, and ``cfg`` of them.

    Raises:
        InputError: the task is not translation; the pieces are not those of its dictionaries or of its data.
    """
    if type(task) is not TranslationTask:
        raise InputError(f"--with-text: goes with models of the task translation; this one's is {type(task).__name__}")
    text = TextParts(
        languages=(task.cfg.source_lang, task.cfg.target_lang),
        source=_words(task.source_dictionary, flags),
        target=_words(task.target_dictionary, flags),
        kind="sentencepiece" if flags.sentencepiece_model else "byte_pairs" if flags.bpe_codes else "words",
        model=model,
        tokenizer=flags.tokenizer or "",
        dash_splits=not flags.moses_no_dash_splits,
        lowercase=flags.lowercase,
    )
    _check_pieces(flags, text, task)
    return text


def _words(dictionary: Dictionary, flags: TextFlags) -> tuple[str, ...]:
    special = Dictionary().symbols
    if dictionary.symbols[: len(special)] != special or dictionary.nspecial != len(special):
        raise InputError("--with-text: the dictionaries of this task have special symbols of their own")
    if unfit := unfit_word(dictionary.symbols):
        word, why = unfit
        raise InputError(f"{flags.of_pieces}: a dictionary has {word!r}{why}; export without text")
    return tuple(dictionary.symbols[len(special) :])


def _check_pieces(flags: TextFlags, text: TextParts, task: Any) -> None:
    """Joins sentences of the data and cuts them again: with the right pieces nearly all come out as they were."""
    if text.kind == "words":
        for share, sign, flag in ((0.1, "\u2581", "--sentencepiece-model"), (0.05, "@@", "--bpe-codes")):
            found = [word for word in text.source if sign in (word[:1], word[-2:])]
            if len(found) > share * len(text.source):
                raise InputError(
                    f"--with-text: the dictionary is of pieces, such as {found[-1]}; name the file that cuts text into them by {flag}"
                )
        _check_words(task)
        return
    pieces = Pieces(text, flags.of_pieces)
    known, right, tried = set(text.source), 0, 0
    for split, words in islice(_sentences(task), _TRIED):
        tried += 1
        right += pieces.cut_tokens(pieces.join_tokens(words)) == words
    if tried and 2 * right < tried:
        raise InputError(
            f"{flags.of_pieces}: cuts {right} of {tried} sentences of {task.cfg.data} ({split}) as they are cut there; name the"
            " file that cut these data"
        )
    if not tried and not known & set(pieces.cut_tokens(pieces.join_tokens(text.source[: 10 * _TRIED]))):
        raise InputError(f"{flags.of_pieces}: none of its pieces is in the dictionary of {task.cfg.data}")


def _check_words(task: Any) -> None:
    """A dictionary with few pieces among its words is seen by sentences that hold them; a word that is written so is let pass."""
    found, tried = [], 0
    for _, words in islice(_sentences(task), _TRIED):
        tried += 1
        found += [word for word in words[:-1] if word.endswith("@@")][:1]
    if len(found) > max(1, 0.02 * tried):
        raise InputError(
            f"--with-text: {len(found)} of {tried} sentences of {task.cfg.data} hold pieces, such as {found[-1]}; name the file that cuts"
            " text into them by --bpe-codes"
        )


def _sentences(task: Any) -> Iterator[tuple[str, list[str]]]:
    """Source sentences of the first split that is there, in the dictionary's words; those with unknown words are left out."""
    source, target, dictionary = task.cfg.source_lang, task.cfg.target_lang, task.source_dictionary
    for split in _SPLITS:
        for pair in (f"{source}-{target}", f"{target}-{source}"):
            prefix = str(Path(task.cfg.data.split(":")[0], f"{split}.{pair}.{source}"))
            if indexed_dataset.dataset_exists(prefix, impl=None):
                sentences = data_utils.load_indexed_dataset(prefix, dictionary)
                for i in range(len(sentences)):
                    ids = [word for word in sentences[i].tolist() if word != dictionary.eos()]
                    if ids and dictionary.unk() not in ids:
                        yield split, [dictionary[word] for word in ids]
                return
