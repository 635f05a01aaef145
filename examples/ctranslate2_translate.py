"""Translate standard input with a CTranslate2 model made by `fairseq-reservoir materialize --ctranslate2`.

Usage: ctranslate2_translate.py FOLDER PIECES.model < TEXT

PIECES.model is the SentencePiece model of the training data; beam 5, as fairseq-generate's in the studies.
"""

import sys


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    import ctranslate2
    import sentencepiece

    pieces = sentencepiece.SentencePieceProcessor(model_file=sys.argv[2])
    translator = ctranslate2.Translator(sys.argv[1], device="cpu", inter_threads=1, intra_threads=1)
    sys.stdin.reconfigure(encoding="utf-8", newline="\n")  # a carriage return within a line does not end it
    lines = [pieces.encode(line.removesuffix("\n").removesuffix("\r"), out_type=str) for line in sys.stdin]
    for result in translator.translate_batch(lines, beam_size=5, max_batch_size=4096, batch_type="tokens"):
        print(pieces.decode(result.hypotheses[0]))


if __name__ == "__main__":
    main()
