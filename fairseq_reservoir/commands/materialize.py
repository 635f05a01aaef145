"""``fairseq-reservoir materialize``: a checkpoint that runs without this plugin."""

from ..errors import InputError

HELP = """\
Writes a translation model of this plugin as a checkpoint of fairseq's own transformer, which runs without the plugin. The model's plan
may contain only the letters L and T. If the model has masks, they are multiplied into its weights:

  fairseq-reservoir materialize checkpoints/checkpoint_best.pt plain.pt
  fairseq-generate data-bin --path plain.pt --required-batch-size-multiple 1

With --ctranslate2, the command also writes a folder for CTranslate2 (pip install ctranslate2), and OUT.pt may be omitted. For
checkpoints, and for exports without dictionaries, --data is the folder of the dictionaries:

  fairseq-reservoir materialize model.safetensors --ctranslate2 ct2 --quantization int8
  fairseq-reservoir materialize checkpoints/checkpoint_best.pt plain.pt --ctranslate2 ct2 --data data-bin

Without --required-batch-size-multiple 1, fairseq without this plugin may skip the last batch.
"""


def add_parser(commands) -> None:
    parser = commands.add_parser(
        "materialize",
        help="write a checkpoint that plain fairseq and CTranslate2 read",
        description=HELP,
    )
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="a checkpoint or an export of this plugin's models")
    parser.add_argument("out", metavar="OUT.pt", nargs="?", help="the file to write")
    parser.add_argument(
        "--ctranslate2",
        metavar="FOLDER",
        help="write a model for CTranslate2. Without OUT.pt, only this model is written",
    )
    parser.add_argument(
        "--quantization",
        metavar="TYPE",
        help="number type of the CTranslate2 model, such as int8 (default: unchanged)",
    )
    parser.add_argument(
        "--data", metavar="DATA", help="folder of the dictionaries for --ctranslate2 (default: the training's DATA)"
    )
    parser.add_argument("--force", action="store_true", help="replace OUT, and FOLDER, if they exist")
    parser.set_defaults(run=run)


def run(known, _):
    from ..checkpoint.ctranslate2_folder import convert
    from ..checkpoint.materialize import materialize

    if not known.ctranslate2:
        for flag in ("quantization", "data"):
            if value := vars(known)[flag]:
                raise InputError(f"--{flag} {value}: needs --ctranslate2 FOLDER")
        if not known.out:
            raise InputError("no output: name the file OUT.pt to write, or a folder with --ctranslate2, or both")
        return materialize(known.checkpoint, known.out, known.force)
    return convert(known.checkpoint, known.ctranslate2, known.out, known.quantization, known.data, known.force)
