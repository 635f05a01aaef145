"""Read and write word vectors in the text format of word2vec.

The first line is "COUNT DIM". Each of the following COUNT lines has a token and DIM numbers.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cached_property
from typing import Any

import torch

from ..errors import InputError, whole_number
from ..files import replacing_together

logger = logging.getLogger(__name__)
# True while a model is built for a checkpoint, which has all values. Embedding files are then not read, and may be missing.
values_from_checkpoint = ContextVar("values_from_checkpoint", default=False)


@contextmanager
def building_for_a_checkpoint() -> Iterator[None]:
    """Context manager in which models are built without reading embedding files."""
    token = values_from_checkpoint.set(True)
    try:
        yield
    finally:
        values_from_checkpoint.reset(token)


def read_embeddings(
    path: str, dictionary: Any, embed_dim: int, min_coverage: float, flag: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """Read the vectors of a dictionary's words from a file.

    Args:
        path: the file.
        dictionary: fairseq's dictionary.
        embed_dim: the model's width.
        min_coverage: minimum fraction of the dictionary's words that the file must contain. Special symbols are not counted.
        flag: the option that named the file, for messages.

    Returns:
        A pair: the dictionary indices of the found words, int64 (found,), and the vectors of these words, float32 (found, embed_dim).

    Raises:
        InputError: the file is missing or malformed, its vectors do not have ``embed_dim`` numbers, or it contains too few of the
            dictionary's words.
    """
    try:
        with open(path, encoding="utf-8") as lines:
            found = _vectors_of(lines, dictionary.indices, embed_dim, f"{flag} {path}")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{flag} {path}: cannot be read ({error})") from None
    words = range(dictionary.nspecial, len(dictionary))
    covered = sum(index in found for index in words)
    logger.info("%s %s: %d of %d dictionary entries found", flag, path, covered, len(words))
    if covered < min_coverage * len(words):
        raise InputError(
            f"{flag} {path}: contains {covered} of the dictionary's {len(words)} entries, a smaller fraction than "
            f"--embed-min-coverage {min_coverage}; is this the file of another language?"
        )
    indices = sorted(found)
    vectors = torch.stack([found[i] for i in indices]) if indices else torch.empty(0, embed_dim)
    return torch.tensor(indices, dtype=torch.int64), vectors


def _vectors_of(lines: Iterator[str], indices: Mapping[str, int], embed_dim: int, file: str) -> dict[int, torch.Tensor]:
    """Map the dictionary index of each found word to its vector. ``file`` names the file in messages."""
    found: dict[int, torch.Tensor] = {}
    header, number = next(lines, "").split(), 1
    if len(header) != 2 or not all(text.isdecimal() for text in header):
        raise InputError(f"{file}: line 1 must be COUNT DIM, as word2vec writes it")
    if whole_number(header[1]) != embed_dim:
        raise InputError(f"{file}: its vectors have {header[1]} numbers, but the model needs {embed_dim}")
    for number, line in enumerate(lines, 2):
        token, *values = line.rstrip("\n").split(" ")
        values = [v for v in values if v]
        if len(values) != embed_dim:
            raise InputError(f"{file}: line {number} has {len(values)} numbers, but the model needs {embed_dim}")
        if token in indices:
            found[indices[token]] = _vector(values, f"{file}: line {number}")
    if number - 1 < (whole_number(header[0]) or 0):
        raise InputError(
            f"{file}: line 1 says {header[0]} vectors, but {number - 1} follow; if the file is complete, correct line 1"
        )
    return found


def _vector(values: list[str], line: str) -> torch.Tensor:
    try:
        vector = torch.tensor([float(v) for v in values])
    except ValueError:
        raise InputError(f"{line} has text in place of a number") from None
    if not vector.isfinite().all():
        raise InputError(f"{line} contains a number that is not finite")
    return vector


def start_from(embedding: torch.nn.Embedding, path: str | None, dictionary: Any, flag: str) -> None:
    """Copy the vectors of a file into an embedding, as fairseq's models do.

    Args:
        embedding: embedding of the dictionary's words.
        path: the file; None leaves the embedding unchanged.
        dictionary: fairseq's dictionary.
        flag: the option that named the file, for messages.

    Raises:
        InputError: as ``read_embeddings``, or the file contains none of the dictionary's words.
    """
    if not path or values_from_checkpoint.get():
        return
    indices, vectors = read_embeddings(path, dictionary, embedding.embedding_dim, 0, flag)
    if not len(indices):
        raise InputError(
            f"{flag} {path}: contains none of the dictionary's entries; is this the file of another language?"
        )
    embedding.weight.data[indices] = vectors


class _LazyVectors(Mapping[str, torch.Tensor]):
    """Embedding file that is read at the first access, because fairseq's models open it before they have the dictionary."""

    def __init__(self, path: str, read: Callable[[str], dict[str, torch.Tensor]]) -> None:
        self.path, self._read = path, read

    @cached_property
    def _vectors(self) -> dict[str, torch.Tensor]:
        return self._read(self.path)

    def __getitem__(self, word: str) -> torch.Tensor:
        return self._vectors[word]

    def __iter__(self) -> Iterator[str]:
        return iter(self._vectors)

    def __len__(self) -> int:
        return len(self._vectors)

    def __bool__(self) -> bool:  # does not read the file
        return True


def defer_reading(parse_embedding: Callable[..., Any], embed_path: str) -> Any:
    """Hook of ``utils.parse_embedding``: read the file at the first access. A model that is built for a checkpoint does not read it."""
    return {} if values_from_checkpoint.get() else _LazyVectors(embed_path, parse_embedding)


def load_vectors(load_embedding: Callable[..., Any], embed_dict: Any, vocab: Any, embedding: torch.nn.Embedding) -> Any:
    """Hook of ``utils.load_embedding``: log how many dictionary entries a file contains.

    Raises:
        InputError: the file contains none of the dictionary's entries, or its vectors do not have the width of the embedding.
    """
    if not isinstance(embed_dict, _LazyVectors):
        return load_embedding(embed_dict, vocab, embedding)
    start_from(embedding, embed_dict.path, vocab, "word vectors")
    return embedding


def print_overlap(print_embed_overlap: Callable[..., Any], embed_dict: Any, vocab_dict: Any) -> None:
    """Hook of ``utils.print_embed_overlap``: print nothing if ``load_vectors`` already logs the overlap."""
    if not isinstance(embed_dict, _LazyVectors):
        print_embed_overlap(embed_dict, vocab_dict)


def write_tables(tables: Mapping[str, tuple[Any, torch.Tensor]]) -> None:
    """Write embedding files.

    Existing files are replaced together, so that a reader never finds files from two models (``files.replacing_together``). Numbers have
    enough digits to restore the float32 values exactly.

    Args:
        tables: maps the path of each file to a pair: a fairseq dictionary, and the embedding weight (words, dim) of the words in it.

    Raises:
        InputError: a dictionary and its weight differ in size.
    """
    for path, (dictionary, weight) in tables.items():
        if len(dictionary) != len(weight):
            raise InputError(
                f"{path}: the embedding has {len(weight)} rows, but the dictionary has {len(dictionary)} entries"
            )
    with replacing_together(list(tables)) as temporaries:
        for temporary, (dictionary, weight) in zip(temporaries, tables.values()):
            with temporary.open("w", encoding="utf-8") as file:
                file.write(f"{len(weight)} {weight.shape[1]}\n")
                for index, row in enumerate(weight.float().tolist()):
                    file.write(" ".join([dictionary[index], *(f"{value:.9g}" for value in row)]) + "\n")
