"""A repair of how fairseq writes dictionaries."""

from fairseq.data import Dictionary

from .repair import repair, wrap

OVERWRITE = "#fairseq:overwrite"


@repair("overwritten-words")
def keep_overwrite_flags():
    """Write ``#fairseq:overwrite`` after a word that occurs twice in a dictionary (fairseq #3705).

    If FILE has this mark after a word that exists already, such as ``<s>``, ``fairseq-preprocess --srcdict FILE`` accepts the word. But
    it writes a dictionary without the mark, which no command can read ("Duplicate word found"). ``fairseq-preprocess`` is repaired only
    with ``--user-dir``.
    """

    def _save(original, dictionary, f, kv_iterator):
        return original(dictionary, f, _with_flags(dictionary, kv_iterator))

    wrap(Dictionary, "_save", _save)


def _with_flags(dictionary, lines):
    before = set(dictionary.symbols[: dictionary.nspecial])
    for word, count in lines:
        yield word, f"{count} {OVERWRITE}" if word in before else count
        before.add(word)
