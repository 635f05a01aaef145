"""A repair of how fairseq writes dictionaries."""

from fairseq.data import Dictionary

from .repair import repair, wrap

OVERWRITE = "#fairseq:overwrite"


@repair("overwritten-words")
def keep_overwrite_flags():
    """Write ``#fairseq:overwrite`` behind a word that stands twice in a dictionary (fairseq #3705).

    With that flag ``fairseq-preprocess --srcdict FILE`` reads a word that is there already, such as ``<s>``, and then writes
    a dictionary without the flag. No command can read that one ("Duplicate word found"). ``fairseq-preprocess`` is repaired
    with ``--user-dir`` only.
    """

    def _save(original, dictionary, f, kv_iterator):
        return original(dictionary, f, _with_flags(dictionary, kv_iterator))

    wrap(Dictionary, "_save", _save)


def _with_flags(dictionary, lines):
    before = set(dictionary.symbols[: dictionary.nspecial])
    for word, count in lines:
        yield word, f"{count} {OVERWRITE}" if word in before else count
        before.add(word)
