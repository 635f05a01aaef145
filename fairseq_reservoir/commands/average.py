"""``fairseq-reservoir average``: the mean of several checkpoints of one run."""

HELP = """\
Writes a checkpoint with the mean of the trained tensors of several checkpoints of one run, such as the last three. Masks
are selected again from the mean scores. Random tensors stay the same, bit by bit. Checkpoints with different seeds or plans are refused.

  fairseq-reservoir average checkpoints/checkpoint8.pt checkpoints/checkpoint9.pt checkpoints/checkpoint10.pt mean.pt
"""


def add_parser(commands) -> None:
    parser = commands.add_parser(
        "average",
        help="write the mean of several checkpoints",
        description=HELP,
    )
    parser.add_argument(
        "checkpoints", metavar="CHECKPOINT", nargs="+", help="two or more checkpoints of one training run"
    )
    parser.add_argument("out", metavar="OUT.pt", help="the file to write")
    parser.add_argument("--force", action="store_true", help="replace OUT if it exists")
    parser.set_defaults(run=run)


def run(known, _):
    from ..checkpoint.average import average

    return average(known.checkpoints, known.out, known.force)
