"""``fairseq-reservoir dump-embeddings``: a model's word vectors as text files."""

HELP = """\
Writes the token embeddings of a checkpoint of this plugin or of fairseq in word2vec's text format. For a translation model, the files
are PREFIX.SRC with the words of the source dictionary and PREFIX.TGT with the words of the target dictionary, where SRC and TGT are the
languages. For any other model, the file is PREFIX.txt. To start a new model from these files, train a
translation model with the first line of flags, and any other model with the second line:

  --encoder-embed-path PREFIX.SRC --decoder-embed-path PREFIX.TGT
  --decoder-embed-path PREFIX.txt

If the command is stopped midway, one of the two files may be missing. The files are never from two different models.
"""


def add_parser(commands) -> None:
    parser = commands.add_parser(
        "dump-embeddings",
        help="write a model's word vectors as text files",
        description=HELP,
    )
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="a checkpoint or an export")
    parser.add_argument(
        "prefix", metavar="PREFIX", help="beginning of the names of the files, without .SRC, .TGT or .txt"
    )
    parser.add_argument("--data", metavar="DATA", help="folder of the dictionaries (default: the training's DATA)")
    parser.add_argument("--force", action="store_true", help="replace files that exist")
    parser.set_defaults(run=run)


def run(known, _):
    from ..checkpoint import dictionaries, export_file
    from ..checkpoint.meta_checkpoint import open_checkpoint
    from ..checkpoint.origin import dictionaries_of
    from ..checkpoint.pretrained_embeddings import write_tables
    from ..checkpoint.translator import task_of_text
    from ..errors import InputError
    from ..fairseq_repairs.given import Given
    from ..files import check_out

    source = open_checkpoint(known.checkpoint)
    places = _places(source.model)
    if not places:
        raise InputError(f"CHECKPOINT {known.checkpoint}: {source.config.model._name} has no token embeddings")
    for place in places:
        if not hasattr(source.model.get_submodule(place), "weight"):
            raise InputError(f"CHECKPOINT {known.checkpoint}: {place} is not a table with one vector per word")
    text = None if known.data else export_file.text_of(known.checkpoint)
    if text:
        task = task_of_text(export_file.read_body(known.checkpoint), text)
    else:
        task = dictionaries.task_of_config(source.config, known.data)
    dictionaries.check(dictionaries.folder_of(source.config, known.data), dictionaries_of(source.state), task)
    if Given(task.cfg).source_lang and len(places) == 2:
        sides = ((task.cfg.source_lang, task.source_dictionary), (task.cfg.target_lang, task.target_dictionary))
    elif len({id(source.model.get_submodule(place)) for place in places}) == 1:
        places, sides = places[:1], (("txt", task.source_dictionary),)
    else:
        raise InputError(
            f"CHECKPOINT {known.checkpoint}: has {len(places)} tables of word vectors, but its task does not have two languages"
        )
    paths = [f"{known.prefix}.{ending}" for ending, _ in sides]
    for (ending, _), path in zip(sides, paths):
        check_out(path, known.force, f".{ending}", known.checkpoint)
    model, tables = source.built(), {}
    for place, path, (_, dictionary) in zip(places, paths, sides, strict=True):
        tables[path] = dictionary, model.get_submodule(place).weight.detach()
    write_tables(tables)
    return "\n".join(
        f"{path}: {len(weight):,} vectors of {weight.shape[1]} numbers" for path, (_, weight) in tables.items()
    )


def _places(model) -> list[str]:
    """Return the names of the modules with token embeddings. A module that encoder and decoder share is returned under both names."""
    names = [name for name, _ in model.named_modules(remove_duplicate=False)]
    return [name for name in names if name.rpartition(".")[2] == "embed_tokens"]
