"""``fairseq-reservoir dump-embeddings``: a model's word vectors as text files."""

import argparse

HELP = """\
Writes the token embeddings of a translation checkpoint, ours or any of fairseq's, in word2vec's text format: PREFIX.SRC by
the source dictionary, PREFIX.TGT by the target dictionary. Another model starts from them with

  --encoder-embed-path PREFIX.SRC --decoder-embed-path PREFIX.TGT
"""


def add_parser(commands) -> None:
    parser = commands.add_parser(
        "dump-embeddings",
        help="write a model's word vectors as text, each side by its own dictionary",
        description=HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="a checkpoint or an export of a translation model")
    parser.add_argument("prefix", metavar="PREFIX", help="the files to write, without the language at their end")
    parser.add_argument("--data", metavar="DATA", help="folder of the dictionaries (default: the one trained with)")
    parser.add_argument("--force", action="store_true", help="replace files that exist")
    parser.set_defaults(run=run)


def run(known, _):
    from ..checkpoint import dictionaries
    from ..checkpoint.atomic_file import check_out
    from ..checkpoint.opened import open_checkpoint
    from ..errors import InputError
    from ..pretrained_embeddings import write_embeddings

    source = open_checkpoint(known.checkpoint)
    if not hasattr(source.model, "encoder"):
        raise InputError(f"CHECKPOINT {known.checkpoint}: not a translation model, it has no encoder and decoder")
    task = dictionaries.task_of_config(source.config, known.data)
    sides = (
        ("encoder", task.cfg.source_lang, task.source_dictionary),
        ("decoder", task.cfg.target_lang, task.target_dictionary),
    )
    paths = {stack: f"{known.prefix}.{language}" for stack, language, _ in sides}
    for (_, language, _), path in zip(sides, paths.values()):
        check_out(path, known.force, f".{language}")
    model, lines = source.built(), []
    for stack, _, dictionary in sides:
        weight = getattr(model, stack).embed_tokens.weight.detach()
        write_embeddings(paths[stack], dictionary, weight)
        lines.append(f"{paths[stack]}: {len(weight):,} vectors of {weight.shape[1]} numbers")
    return "\n".join(lines)
