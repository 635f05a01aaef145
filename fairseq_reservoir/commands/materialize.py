"""``fairseq-reservoir materialize``: a checkpoint that runs without this plugin."""

from ..errors import InputError

HELP = """\
Writes a translation model of this plugin as a checkpoint of fairseq's own transformer: plans of L and T, and masks
multiplied into the weights. It runs without the plugin:

  fairseq-reservoir materialize checkpoints/checkpoint_best.pt plain.pt
  fairseq-generate data-bin --path plain.pt --required-batch-size-multiple 1

CTranslate2's folder in the same step (pip install ctranslate2), with OUT.pt or without; --data is for checkpoints and for exports
that carry no dictionaries:

  fairseq-reservoir materialize model.safetensors --ctranslate2 ct2 --quantization int8
  fairseq-reservoir materialize checkpoints/checkpoint_best.pt plain.pt --ctranslate2 ct2 --data data-bin

Without --required-batch-size-multiple 1, fairseq as it is leaves out the last batch.
"""


def add_parser(commands) -> None:
    parser = commands.add_parser(
        "materialize",
        help="write a checkpoint that plain fairseq and CTranslate2 read",
        description=HELP,
    )
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="a checkpoint or an export of this plugin's models")
    parser.add_argument("out", metavar="OUT.pt", nargs="?", help="the file to write")
    parser.add_argument("--ctranslate2", metavar="FOLDER", help="write CTranslate2's model too, or alone")
    parser.add_argument(
        "--quantization", metavar="TYPE", help="of CTranslate2's model, such as int8 or float16 (default none)"
    )
    parser.add_argument(
        "--data", metavar="DATA", help="folder of the dictionaries for --ctranslate2 (default: the one trained on)"
    )
    parser.add_argument("--force", action="store_true", help="replace OUT, and FOLDER, if they exist")
    parser.set_defaults(run=run)


def run(known, _):
    from ..checkpoint.ctranslate2_folder import convert
    from ..checkpoint.materialize import materialize

    if not known.ctranslate2:
        for flag in ("quantization", "data"):
            if getattr(known, flag):
                raise InputError(f"--{flag} {getattr(known, flag)}: goes with --ctranslate2 FOLDER")
        if not known.out:
            raise InputError("OUT.pt: name the file to write, or a folder by --ctranslate2, or both")
        return materialize(known.checkpoint, known.out, known.force)
    return convert(known.checkpoint, known.ctranslate2, known.out, known.quantization, known.data, known.force)
