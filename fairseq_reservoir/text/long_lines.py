"""Lines of more words than a model was made for, in parts that are translated one by one."""

import re
from collections.abc import Callable, Sequence

_SENTENCE_ENDS = (".", "!", "?", ";", ":", "\u3002", "\uff01", "\uff1f")
_ENTITY = re.compile(r"&#?\w+;$")  # &apos; and the like, as Moses' tokenizer writes a quote
_MOST_PIECES = 8  # of one entity


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
        sentences_begin = [i for i in words_begin if _ends_a_sentence(rest[max(0, i - _MOST_PIECES) : i])]
        end = next(iter([*sentences_begin, *words_begin]), most)
        parts.append(rest[:end])
        rest = rest[end:]
    return [*parts, rest]


def _ends_a_sentence(last: Sequence[str]) -> bool:
    text = "".join(word.removesuffix("@@") if word.endswith("@@") else f"{word} " for word in last)
    return last[-1].endswith(_SENTENCE_ENDS) and not _ENTITY.search(text.rstrip())
