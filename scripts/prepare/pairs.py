"""Filtering of sentence pairs and division into splits."""

import re

# Perl's \s in Unicode text; Python's also has the separators U+001C to U+001F.
SPACES = re.compile(r"[\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]+")


def clean(pairs, shortest, longest, ratio):
    """Yield the ``pairs`` that ``clean-corpus-n.perl -ratio ratio ... shortest longest`` keeps, with single spaces.

    Both lines must have ``shortest`` to ``longest`` words of at most 1,000 characters. Their word counts must have a ratio of at
    most ``ratio``. (The Perl script deletes bars, but Moses' tokenizer has replaced them by ``&#124;`` before.)
    """
    for pair in pairs:
        pair = tuple(SPACES.sub(" ", line).strip(" ") for line in pair)
        words = [line.split(" ") for line in pair]
        fewer, more = sorted(map(len, words))
        if all(pair) and shortest <= fewer and more <= longest and more / fewer <= ratio:
            if max(len(word) for line in words for word in line) <= 1000:
                yield pair


def every(pairs, number, chosen):
    """Yield every ``number``-th pair, counted from 1, if ``chosen``; otherwise all other pairs."""
    for index, pair in enumerate(pairs, 1):
        if (index % number == 0) == chosen:
            yield pair
