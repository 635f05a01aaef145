"""``fairseq-reservoir export``: a checkpoint as one small file without pickle."""

HELP = """\
Writes a checkpoint of this plugin's models as a safetensors file: the seed and the SHA-256 of every random tensor, masks
and rounded weights as bits, trained tensors, slot table, configuration and hashes of the dictionaries; no optimizer state.
Random tensors that are equal on every machine are left out; orthogonal ones are stored unless --regenerate is given. The file
loads without pickle and replaces the checkpoint:

  fairseq-reservoir export checkpoints/checkpoint_best.pt model.safetensors --dtype fp16
  fairseq-generate data-bin --user-dir fairseq_reservoir --path model.safetensors

With the model of the pieces it carries the dictionaries too, and translates text by itself:

  fairseq-reservoir export checkpoints/checkpoint_best.pt model.safetensors --sentencepiece-model pieces/joint.model
  fairseq-reservoir translate model.safetensors < text.en > text.de
"""


def add_parser(commands) -> None:
    parser = commands.add_parser(
        "export",
        help="write a checkpoint as seed, masks and trained tensors",
        description=HELP,
    )
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="a checkpoint of one of this plugin's models")
    parser.add_argument("out", metavar="OUT.safetensors", help="the file to write")
    parser.add_argument(
        "--dtype",
        default="fp32",
        help="fp32, fp16 or bf16: type of the tensors that are not random (default fp32, which loses nothing)",
    )
    parser.add_argument("--with-weights", action="store_true", help="store every random tensor")
    parser.add_argument(
        "--regenerate",
        action="store_true",
        help="store no random tensor, not even orthogonal ones: a machine that draws other last bits refuses the file",
    )
    parser.add_argument(
        "--compact",
        action="store_true",
        help="masks and numbers near their entropy; writing and reading such a file needs the package constriction (extra"
        " compact). Without it, the default, this plugin alone reads the file",
    )
    parser.add_argument("--force", action="store_true", help="replace OUT if it exists")
    parser.add_argument("--data", metavar="DATA", help="folder of the dictionaries (default: the one trained on)")
    text = parser.add_argument_group(
        "text, so that `translate` needs no other file; each of these stores the dictionaries"
    )
    text.add_argument(
        "--sentencepiece-model", metavar="FILE", help="the SentencePiece model that cut the source sentences"
    )
    text.add_argument("--bpe-codes", metavar="FILE", help="the codes of subword-nmt or fastBPE that cut them")
    text.add_argument("--with-text", action="store_true", help="for data of whole words, with no pieces")
    text.add_argument(
        "--tokenizer", metavar="moses", help="Moses' tokenizer came before the pieces, as fairseq's --tokenizer"
    )
    text.add_argument(
        "--moses-no-dash-splits", action="store_true", help="as fairseq's: it left words with dashes alone"
    )
    text.add_argument("--lowercase", action="store_true", help="the data are in lower case")
    parser.set_defaults(run=run)


def run(known, _):
    from ..checkpoint.export import TextFlags, export

    text = TextFlags(
        with_text=known.with_text,
        sentencepiece_model=known.sentencepiece_model,
        bpe_codes=known.bpe_codes,
        tokenizer=known.tokenizer,
        moses_no_dash_splits=known.moses_no_dash_splits,
        lowercase=known.lowercase,
    )
    return export(
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
