"""Learn subword units and split lines into them, by fastBPE, subword-nmt or SentencePiece, in the formats of fairseq's --bpe."""

import io
from functools import partial

from prepare.console import require
from prepare.parallel import map_lines
from prepare.text import read, write

# Packages of each kind: name of the Python module -> name of the package for pip.
KINDS = {
    "subword_nmt": {"subword_nmt": "subword-nmt"},
    "fastbpe": {"fastBPE": "fastBPE", "subword_nmt": "subword-nmt"},
    "sentencepiece": {"sentencepiece": "sentencepiece"},
}
MODEL = {"subword_nmt": "codes", "fastbpe": "codes", "sentencepiece": "sentencepiece.model"}


def check(kind):
    """Raise InputError unless the packages that ``kind`` needs are installed."""
    require(f"--bpe {kind}", KINDS[kind])


def learn(kind, size, files, model):
    """Learn units from the lines of ``files`` and write them to ``model``.

    Args:
        size: number of merges; for SentencePiece, total number of units.

    fastBPE's Python package can only apply codes. subword-nmt learns them, and they are written in fastBPE's format.
    """
    lines = (line for file in files for line in read(file))
    if kind == "sentencepiece":
        _learn_sentencepiece(size, lines, model)
        return
    from subword_nmt.learn_bpe import learn_bpe

    codes = io.StringIO()
    learn_bpe((line + "\n" for line in lines), codes, size)
    merges = codes.getvalue().removesuffix("\n").split("\n")  # U+2028 may be in a symbol and does not end a line
    if kind == "fastbpe":  # lines without a version, but with a count, which is not used
        merges = [f"{merge} 0" for merge in merges[1:]]
    write(model, merges)


def _learn_sentencepiece(size, lines, model):
    import sentencepiece

    # The text is tokenised. Its spaces and characters are not changed, so that --remove-bpe restores the tokens.
    # Iterator and bytes are used instead of files, because the model would contain the names of the files.
    content = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=content, model_type="bpe", vocab_size=size, hard_vocab_limit=False,
        character_coverage=1.0, normalization_rule_name="identity", num_threads=1, minloglevel=2,
    )  # fmt: skip
    model.write_bytes(content.getvalue())


def apply(kind, model, source, target, jobs):
    """Write ``source`` to ``target`` in the units of ``model``."""
    write(target, map_lines(partial(segmenter, kind, str(model)), read(source), jobs))


def segmenter(kind, model):
    """Return a function that splits a line into the units of ``model``."""
    if kind == "subword_nmt":
        from subword_nmt.apply_bpe import BPE

        with open(model, encoding="utf-8", newline="\n") as codes:
            return BPE(codes).process_line
    if kind == "fastbpe":
        from fastBPE import fastBPE

        units = fastBPE(model)
        return lambda line: units.apply([line])[0]
    from sentencepiece import SentencePieceProcessor

    units = SentencePieceProcessor(model_file=model)
    return lambda line: " ".join(units.encode(line, out_type=str))
