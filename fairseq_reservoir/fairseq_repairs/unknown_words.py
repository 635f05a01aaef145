"""Repair of ``--replace-unk``, which replaces unknown words in a translation by words of the source."""

import os

from fairseq import utils
from fairseq.data import data_utils
from fairseq.tasks import FairseqTask
from fairseq.tokenizer import tokenize_line

from ..errors import InputError
from .given import Given
from .interactive import current_session
from .repair import repair, wrap

# The value of --replace-unk without a file.
NO_FILE = "@@ "


class _Aligned(list):
    """An alignment of source and target tokens. ``words`` contains the original source words; None if they are not available."""

    words: list[str] | None = None


@repair("unknown-words")
def replace_unknown_words():
    """Let ``--replace-unk`` replace unknown words by source words (fairseq #3533).

    Each unknown word is replaced by the source word with the most attention.

    Without a value for the flag, fairseq opens a file named ``"@@ "``. With the name of a file, fairseq ends in an IndexError, because it
    computes no alignment without ``--print-alignment``. With ``--print-alignment`` it ends in a TypeError, because the alignment is a list
    of pairs. If the source word is not in the dictionary either, ``fairseq-interactive`` of plain fairseq inserts ``<unk>``. This repair
    inserts the original word. Unknown subwords are replaced before subwords are joined to words. ``fairseq-generate`` still needs text
    data (``--dataset-impl raw``).
    """

    def load_align_dict(original, replace_unk):
        if replace_unk == NO_FILE:
            return {}
        if replace_unk and not os.path.isfile(replace_unk):
            raise InputError(
                f"--replace-unk {replace_unk}: no such file; give an existing file, or omit the value to copy source words"
            )
        try:
            return original(replace_unk)
        except (IndexError, UnicodeDecodeError) as error:
            raise InputError(
                f"--replace-unk {replace_unk}: each line must have a source word and a target word"
            ) from error

    def build_generator(original, task, models, args, *more, **kwargs):
        given = Given(args)
        if given.replace_unk is None or given.score_reference:
            return original(task, models, args, *more, **kwargs)
        generator = original(task, models, args, *more, **kwargs)
        generator.generate = _with_words(generator.generate, task.target_dictionary)
        return generator

    def post_process_prediction(
        original, hypo_tokens, src_str, alignment, align_dict, tgt_dict, remove_bpe=None, extra_symbols_to_ignore=None
    ):
        if align_dict is None or not isinstance(alignment, _Aligned):
            return original(hypo_tokens, src_str, alignment, align_dict, tgt_dict, remove_bpe, extra_symbols_to_ignore)
        words = tokenize_line(src_str) if alignment.words is None else alignment.words
        found = _replaced(
            hypo_tokens.tolist(), words, alignment, align_dict, tgt_dict, set(extra_symbols_to_ignore or ())
        )
        text = data_utils.post_process(" ".join(found), remove_bpe)
        return tgt_dict.encode_line(text, add_if_not_exist=True), text, alignment

    wrap(utils, "load_align_dict", load_align_dict)
    wrap(FairseqTask, "build_generator", build_generator)
    wrap(utils, "post_process_prediction", post_process_prediction)


def _with_words(generate, dictionary):
    """Wrap a generator's ``generate`` to store an ``_Aligned`` as the ``alignment`` of each hypothesis."""

    def with_words(models, sample, **kwargs):
        translations, session = generate(models, sample, **kwargs), current_session()
        words = session.words if session else [None] * len(translations)
        for of_sentence, tokens, hypotheses in zip(words, sample["net_input"]["src_tokens"], translations):
            for hypothesis in hypotheses:
                hypothesis["alignment"] = _Aligned(_alignment(hypothesis, tokens, dictionary))
                hypothesis["alignment"].words = of_sentence
        return translations

    return with_words


def _alignment(hypothesis, source, dictionary):
    if len(hypothesis["alignment"]):  # made by --print-alignment
        return hypothesis["alignment"]
    attention = hypothesis.get("attention")  # (source, target)
    if attention is None or not attention.numel():
        raise InputError("--replace-unk: the model has no attention to the source; remove the flag")
    target = hypothesis["tokens"].cpu()
    return utils.extract_hard_alignment(attention.cpu().T, source.cpu(), target, dictionary.pad(), dictionary.eos())


def _replaced(tokens, words, alignment, align_dict, dictionary, ignored):
    """Return the words of a translation, with source words in place of unknown words.

    If ``align_dict`` has a translation of the source word, this translation is used instead.
    """
    source_of = _sources(alignment, len(words))
    ignored |= {dictionary.bos(), dictionary.eos(), dictionary.pad()}
    place, found = 0, []
    for token in tokens:
        source = source_of.get(place)
        if token == dictionary.unk() and source is not None and source < len(words):
            found.append(align_dict.get(words[source], words[source]))
        elif token not in ignored:
            found.append(dictionary[token])
        place += token not in (dictionary.eos(), dictionary.pad())
    return found


def _sources(alignment, words):
    """Map the positions of target tokens to the positions of their source tokens.

    ``alignment`` is a list of pairs (source, target), or a list with a row of attention weights for each target token. Each row begins with
    the weights of the ``words`` source words. The weight of the end of the sentence follows.
    """
    if alignment and not isinstance(alignment[0], tuple):
        of_words = [list(map(float, row[:words])) for row in alignment]
        return {place: weights.index(max(weights)) for place, weights in enumerate(of_words) if weights}
    return {target: source for source, target in alignment}
