"""``fairseq-reservoir plan``: the slot table of a model, without data."""

HELP = """\
Prints the slot table of a model without data: the kind of each layer, whether it is trained or frozen, parameters and matmul
FLOPs per token; with --fast the parts that it changes, and with --optimizer freeze_skip the schedule. Takes every flag of
fairseq-train; flags that do not belong to the model have no effect here. For example

  fairseq-reservoir plan --arch reservoir_transformer_iwslt_de_en --reservoir-encoder LLFLFLL
"""


def add_parser(commands) -> None:
    parser = commands.add_parser(
        "plan",
        help="print the trained and the frozen parts of a model, without data",
        description=HELP,
    )
    parser.add_argument(
        "--arch", "-a", required=True, help="an architecture of text models, of this plugin or of fairseq"
    )
    add_dictionary_sizes(parser)
    parser.set_defaults(run=run, takes_fairseq_flags=True)


def add_dictionary_sizes(parser) -> None:
    for side in ("source", "target"):
        parser.add_argument(f"--{side}-words", type=int, metavar="N", help="dictionary size (default 10000)")


def run(known, fairseq_flags):
    from ..checkpoint.dry_build import build_arch, notes

    model = build_arch(known.arch, fairseq_flags, known.source_words, known.target_words)
    said = [note(model, model.flags) for note in notes]
    return "\n\n".join([str(model.slot_table), *filter(None, said)])


def plan(arch: str, fairseq_flags: list[str], source_words: int | None = None, target_words: int | None = None):
    """The slot table of an architecture, without data.

    Args:
        arch: name of an architecture of text models, of this plugin or of fairseq.
        fairseq_flags: flags of ``fairseq-train``, a word each: ``["--reservoir-encoder", "LFL"]``.
        source_words: size of the source dictionary, 10000 if None.
        target_words: size of the target dictionary, 10000 if None.

    Raises:
        InputError: no such architecture, or flags with values that are not allowed.
    """
    from ..checkpoint.dry_build import build_arch

    return build_arch(arch, fairseq_flags, source_words, target_words).slot_table
