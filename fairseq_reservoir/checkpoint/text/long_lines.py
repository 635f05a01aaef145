"""Lines of more words than a model was made for, in parts that are translated one by one."""

from collections.abc import Callable, Sequence

_SENTENCE_ENDS = (".", "!", "?", ";", ":", "\u3002", "\uff01", "\uff1f")


def in_parts(words: Sequence[str], most: int, may_begin: Callable[[Sequence[str], int], bool]) -> list[list[str]]:
    """Parts of at most ``most`` words each, which together are the line.

    A part ends at the last end of a sentence in its second half, or else of a word, or else where it is full.

    Args:
        words: pieces, or words, of the line.
        most: 1 or more.
        may_begin: whether the text may be taken apart before the i-th of the words.
    """
    parts, rest = [], list(words)
    while len(rest) > most:
        words_begin = [i for i in range(most, most // 2, -1) if may_begin(rest, i)]
        sentences_begin = [i for i in words_begin if rest[i - 1].endswith(_SENTENCE_ENDS)]
        end = next(iter([*sentences_begin, *words_begin]), most)
        parts.append(rest[:end])
        rest = rest[end:]
    return [*parts, rest]
