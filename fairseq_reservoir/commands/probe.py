"""``fairseq-reservoir probe``: linear classifiers on the outputs of each layer."""

import os
from pathlib import Path

from ..errors import InputError
from ..files import check_out, replacing
from ..options.number_rules import Rule, check as check_rules

HELP = """\
Trains a linear classifier (logistic regression) on the outputs of each layer of a trained model. The model itself does not change. The
command prints how often the classifier predicts a property of the token correctly: which of the 50 most frequent tokens it is, its position
in the sentence, the length of its sentence, its frequency in the dictionary, and whether the target sentence contains it. Properties that
are numbers are divided into four classes. For comparison, the command prints the accuracy for a control task with random classes (Hewitt
and Liang, 2019), and the difference of the two accuracies (the selectivity).

  fairseq-reservoir probe checkpoints/checkpoint_best.pt data-bin
  fairseq-reservoir probe runs/LTLTL/checkpoint_best.pt runs/LLLLL/checkpoint_best.pt data-bin --split valid,test --figure probes.svg

The command probes the encoder of a translation model or a RoBERTa, and the decoder of a language model.
Layer 0 is the embeddings. The output of a layer is the input of the next layer. In a pre-norm model, the final LayerNorm is not applied.
60 % of the sentences train a classifier, 20 % choose its penalty, and 20 % test it. The same command always prints the same numbers.
"""
_FEWEST = 20
_RULES = (
    Rule("probe.sentences", at_least=_FEWEST, at_most=10**6),
    Rule("probe.tokens", at_least=_FEWEST, at_most=10**7),
    Rule("probe.seed", at_least=0, at_most=2**31 - 1),
)


def add_parser(commands) -> None:
    parser = commands.add_parser(
        "probe",
        help="train linear classifiers on the outputs of each layer",
        description=HELP,
    )
    parser.add_argument("checkpoints", nargs="+", metavar="CHECKPOINT", help="a checkpoint or an export")
    parser.add_argument("data", metavar="DATA", help="folder written by fairseq-preprocess")
    parser.add_argument(
        "--split", default="valid", metavar="NAMES", help="splits of DATA, joined by commas (default %(default)s)"
    )
    parser.add_argument(
        "--sentences",
        type=int,
        default=2000,
        metavar="N",
        help="maximum number of sentences, drawn at random (default %(default)s)",
    )
    parser.add_argument(
        "--tokens",
        type=int,
        default=10_000,
        metavar="N",
        help="maximum number of tokens, drawn at random from the sentences (default %(default)s)",
    )
    parser.add_argument(
        "--seed", type=int, default=1, metavar="N", help="seed of all random choices (default %(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--figure", metavar="FILE", help="also draw a figure; the name ends in .svg, .png or .pdf")
    parser.add_argument("--force", action="store_true", help="replace FILE if it exists")
    parser.set_defaults(run=run)


def run(known, _):
    from ..studies.probe.results import as_json, as_text, short_names

    check_rules({"probe": vars(known)}, _RULES)
    splits = known.split.split(",")
    if not all(splits) or len(set(splits)) < len(splits):
        raise InputError(
            f"--split {known.split!r}: must be one or several different names joined by commas, as in valid,test"
        )
    if known.figure is not None:
        _check_figure(known)
    if not os.path.isdir(known.data):
        raise InputError(f"DATA {known.data}: no such folder")
    names = short_names(known.checkpoints)
    probed = [_probed(path, name, splits, known) for path, name in zip(known.checkpoints, names)]
    if known.figure is not None:
        from ..studies.probe.figure import draw

        with replacing(known.figure, "--figure {path}: cannot be written ({why})") as temporary:
            draw(probed, str(temporary), Path(known.figure).suffix)
    settings = {"data": known.data, "split": known.split, "seed": known.seed}
    if known.json:
        return as_json(probed, settings)
    tokens = probed[0].tokens
    sentences = len({*tokens.sentence.tolist()})
    return as_text(
        probed, f"{len(tokens):,} tokens of {sentences:,} sentences ({known.split} of {known.data}), seed {known.seed}"
    )


def _check_figure(known) -> None:
    from ..studies.figure_style import check_matplotlib
    from ..studies.probe.figure import SUFFIXES

    suffix = Path(known.figure).suffix
    if suffix not in SUFFIXES:
        raise InputError(f"--figure {known.figure}: the name must end in .svg, .png or .pdf")
    check_matplotlib("--figure needs matplotlib: pip install matplotlib")
    check_out(known.figure, known.force, suffix, *known.checkpoints, what="--figure")


def _probed(path, name, splits, known):
    """Probe all layers of one checkpoint."""
    from ..checkpoint.layer_outputs import LEFT_OUT, ProbedModel
    from ..studies.probe.classifier import probe
    from ..studies.probe.properties import properties
    from ..studies.probe.results import Probed
    from ..studies.probe.sample import choose_sentences, gather, tokens_of

    model = ProbedModel(path, known.data)
    # Twice as many as needed, because repeated sentences are left out.
    found = [sentence for split in splits for sentence in model.sentences(split, 2 * known.sentences, known.seed)]
    sentences = choose_sentences(found, known.sentences, known.seed)
    if len(sentences) < _FEWEST:
        raise InputError(
            f"--split {known.split}: DATA {known.data} has {len(sentences)} different sentences of 2 to {model.longest} tokens;"
            f" at least {_FEWEST} are needed"
        )
    dictionary = model.dictionary
    tokens = tokens_of(sentences, dictionary.count, dictionary.nspecial, known.tokens, known.seed)
    tasks = properties(tokens, known.seed)
    if not tasks:
        raise InputError(
            f"--split {known.split}: the tokens in DATA {known.data} cannot be probed, because no property has two classes"
        )
    outputs = iter(gather(model.outputs(sentences), tokens))
    results = {task.name: [] for task in tasks}
    for depth in model.depths:
        layer = None if depth.state == LEFT_OUT else next(outputs)
        for task in tasks:
            results[task.name].append(None if layer is None else probe(layer, tokens, task, known.seed))
    return Probed(path, name, model.stack, model.depths, tokens, tasks, results)
