"""``fairseq-reservoir materialize``: a checkpoint that runs without this plugin."""

import argparse

HELP = """\
Writes a translation model of this plugin as a checkpoint of fairseq's own transformer: plans of L and T, and masks
multiplied into the weights. It runs without the plugin, and CTranslate2 converts it:

  fairseq-reservoir materialize checkpoints/checkpoint_best.pt plain.pt
  fairseq-generate data-bin --path plain.pt --required-batch-size-multiple 1
  ct2-fairseq-converter --model_path plain.pt --data_dir data-bin --output_dir ct2

Without --required-batch-size-multiple 1, fairseq as it is leaves out the last batch.
"""


def add_parser(commands) -> None:
    parser = commands.add_parser(
        "materialize",
        help="write a checkpoint that plain fairseq and CTranslate2 read",
        description=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="a checkpoint or an export of this plugin's models")
    parser.add_argument("out", metavar="OUT.pt", help="the file to write")
    parser.add_argument("--force", action="store_true", help="replace OUT if it exists")
    parser.set_defaults(run=run)


def run(known, _):
    from ..checkpoint.materialize import materialize

    return materialize(known.checkpoint, known.out, known.force)
