"""``fairseq-reservoir plan``: print the slot table of a model. It needs no data."""

HELP = """\
Prints the slot table of a model. No data are needed. A slot is a layer of the plan. The table has a row for each slot and each module
outside the layers. A row shows the kind, whether the part is trained or frozen, the number of parameters, and the FLOPs of the matrix
products for one token. With --fast, the command also lists the active parts of --fast. With --optimizer freeze_skip, it also prints the
freeze schedule. It accepts every flag of fairseq-train. Flags that do not change the model have no effect here. For example

  fairseq-reservoir plan --arch reservoir_transformer_iwslt_de_en --reservoir-encoder LLFLFLL
"""


def add_parser(commands) -> None:
    parser = commands.add_parser(
        "plan",
        help="print the trained and the frozen parts of a model, without data",
        description=HELP,
    )
    parser.add_argument("--arch", "-a", required=True, help="an architecture for text in this plugin or in fairseq")
    add_dictionary_sizes(parser)
    parser.set_defaults(run=run, takes_fairseq_flags=True)


def add_dictionary_sizes(parser) -> None:
    for side in ("source", "target"):
        parser.add_argument(f"--{side}-words", type=int, metavar="N", help="dictionary size (default 10000)")


def run(known, fairseq_flags):
    from ..checkpoint.dry_build import build_arch, notes

    model = build_arch(known.arch, fairseq_flags, known.source_words, known.target_words)
    further = [note(model, model.flags, model.configuration) for note in notes]
    return "\n\n".join([str(model.slot_table), *filter(None, further)])


def plan(arch: str, fairseq_flags: list[str], source_words: int | None = None, target_words: int | None = None):
    """Return the slot table of an architecture, with a row for each layer (slot) and each module outside the layers. Needs no data.

    Args:
        arch: name of an architecture for text in this plugin or in fairseq.
        fairseq_flags: flags of ``fairseq-train`` as separate words: ``["--reservoir-encoder", "LFL"]``.
        source_words: size of the source dictionary, 10000 if None.
        target_words: size of the target dictionary, 10000 if None.

    Raises:
        InputError: the architecture does not exist, or a flag has a value that is not allowed.
    """
    from ..checkpoint.dry_build import build_arch

    return build_arch(arch, fairseq_flags, source_words, target_words).slot_table
