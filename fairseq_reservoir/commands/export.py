"""``fairseq-reservoir export``: convert a checkpoint to one small file without pickle."""

HELP = """\
Writes a checkpoint of this plugin's models as a safetensors file. The file contains the seed, the SHA-256 of every random tensor, the
trained tensors, masks and rounded weights as bits, the configuration, hashes of the dictionaries, and the slot table (the list of trained
and frozen tensors by layer). It contains no optimizer state. Random tensors that are equal on every machine are not stored. The file stores
orthogonal tensors unless --regenerate is given. The file loads without pickle and can be used in place of the checkpoint:

  fairseq-reservoir export checkpoints/checkpoint_best.pt model.safetensors --dtype fp16
  fairseq-generate data-bin --user-dir fairseq_reservoir --path model.safetensors

If you give the model that splits words into pieces, the file also contains the dictionaries. `translate` then needs no other file:

  fairseq-reservoir export checkpoints/checkpoint_best.pt model.safetensors --sentencepiece-model pieces/joint.model
  fairseq-reservoir translate model.safetensors < text.en > text.de
"""


def add_parser(commands) -> None:
    parser = commands.add_parser(
        "export",
        help="write a small file with the seed, masks and trained tensors of a checkpoint",
        description=HELP,
    )
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="a checkpoint of a model of this plugin")
    parser.add_argument("out", metavar="OUT.safetensors", help="the file to write")
    parser.add_argument(
        "--dtype",
        default="fp32",
        help="fp32, fp16 or bf16: dtype of the tensors that are not random (default: fp32, without rounding)",
    )
    parser.add_argument("--with-weights", action="store_true", help="store every random tensor")
    parser.add_argument(
        "--regenerate",
        action="store_true",
        help="store no random tensor, not even orthogonal ones. A machine that draws different bits for one of these tensors"
        " cannot load the file",
    )
    parser.add_argument(
        "--compact",
        action="store_true",
        help="compress all tensors almost to their entropy. To write or read such a file, install the Python package"
        " constriction (the extra 'compact'). Files written without --compact do not need it",
    )
    parser.add_argument("--force", action="store_true", help="replace OUT if it exists")
    parser.add_argument("--data", metavar="DATA", help="folder of the dictionaries (default: the training's DATA)")
    _add_text_flags(parser)
    _add_card_flags(parser)
    parser.set_defaults(run=run)


def _add_text_flags(parser) -> None:
    text = parser.add_argument_group(
        "with these flags, the file also contains the dictionaries and the preparation of text, so that `translate` needs no other file"
    )
    text.add_argument(
        "--sentencepiece-model",
        metavar="FILE",
        help="the SentencePiece model that split the source sentences into pieces",
    )
    text.add_argument(
        "--bpe-codes", metavar="FILE", help="the codes of subword-nmt or fastBPE that split the source sentences"
    )
    text.add_argument(
        "--with-text",
        action="store_true",
        help="store the dictionaries. Use this flag if the data was split into whole words instead of word pieces",
    )
    text.add_argument(
        "--tokenizer",
        metavar="moses",
        help="the text was tokenized with Moses before words were split, as with fairseq's --tokenizer moses",
    )
    text.add_argument(
        "--moses-no-dash-splits",
        action="store_true",
        help="the data was tokenised by Moses without splitting words at dashes, as with fairseq's flag of this name",
    )
    text.add_argument("--lowercase", action="store_true", help="the data are in lower case")


def _add_card_flags(parser) -> None:
    card = parser.add_argument_group("a model card, with Hugging Face's metadata header")
    card.add_argument(
        "--card", metavar="FILE.md", help="write a model card: languages, plan, sizes and how to use the file"
    )
    card.add_argument(
        "--card-license", metavar="NAME", help="licence of the model, such as mit (default: the card names no licence)"
    )
    card.add_argument("--card-data", metavar="TEXT", help="description of the training data")
    card.add_argument(
        "--card-bleu",
        metavar="JSON",
        help="file with the output of `sacrebleu REFERENCES -i TRANSLATIONS`: scores and signatures",
    )


def run(known, _):
    from ..checkpoint import model_card
    from ..checkpoint.export import TextFlags, export

    text = TextFlags(
        with_text=known.with_text,
        sentencepiece_model=known.sentencepiece_model,
        bpe_codes=known.bpe_codes,
        tokenizer=known.tokenizer,
        moses_no_dash_splits=known.moses_no_dash_splits,
        lowercase=known.lowercase,
    )
    card = model_card.CardFlags(known.card, known.card_license, known.card_data, known.card_bleu)
    scores = model_card.check_flags(card, known.force, known.checkpoint, known.out)
    written = export(
        known.checkpoint,
        known.out,
        dtype=known.dtype,
        with_weights=known.with_weights,
        regenerate=known.regenerate,
        force=known.force,
        data=known.data,
        compact=known.compact,
        text=text,
    )
    if card.card is not None:
        model_card.write(known.out, card, scores)
    return written.details if known.verbose else written
