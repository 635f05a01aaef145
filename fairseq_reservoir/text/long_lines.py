"""Split lines that are longer than a model's maximum input. The parts are translated separately."""

import re
from collections.abc import Callable, Sequence

_SENTENCE_ENDS = (".", "!", "?", ";", ":", "\u3002", "\uff01", "\uff1f")
_ENTITY = re.compile(r"&#?\w+;$")  # such as &apos;, which Moses' tokenizer writes for a quote
_MOST_PIECES = 8  # maximum number of pieces of one entity


def split_long_line(
    tokens: Sequence[str], most: int, may_begin: Callable[[Sequence[str], int], bool]
) -> list[list[str]]:
    """Split the tokens of a line into parts of at most ``most`` tokens.

    A part ends at the last end of a sentence in its second half. If there is none, the part ends at the last end of a word in its second
    half. If there is none either, the part has ``most`` tokens.

    Args:
        tokens: pieces or words of the line.
        most: maximum number of tokens in a part, at least 1.
        may_begin: function (tokens, i) that returns whether a word begins at token i.
    """
    parts, rest = [], list(tokens)
    while len(rest) > most:
        word_starts = [i for i in range(most, most // 2, -1) if may_begin(rest, i)]
        sentence_starts = [i for i in word_starts if _ends_a_sentence(rest[max(0, i - _MOST_PIECES) : i])]
        end = next(iter([*sentence_starts, *word_starts]), most)
        parts.append(rest[:end])
        rest = rest[end:]
    return [*parts, rest]


def _ends_a_sentence(last: Sequence[str]) -> bool:
    text = "".join(token.removesuffix("@@") if token.endswith("@@") else f"{token} " for token in last)
    return last[-1].endswith(_SENTENCE_ENDS) and not _ENTITY.search(text.rstrip())
