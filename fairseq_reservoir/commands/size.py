"""``fairseq-reservoir size``: print the sizes of a model's tensors, checkpoints and exports in bytes."""

import os
from pathlib import Path

from ..errors import InputError, in_one_line
from ..files import check_file

HELP = """\
Prints the size of a model in bytes: its trained, random, masked and frozen tensors, the memory for training and inference, and the
size of a checkpoint and of exports. For a file, the command also prints the paths and names in the file that identify its author. The
argument is a checkpoint, an export, or an architecture with flags of fairseq-train, for example

  fairseq-reservoir size checkpoints/checkpoint_best.pt
  fairseq-reservoir size reservoir_transformer_iwslt_de_en --reservoir-encoder LLFLFLL --source-words 8848
"""
_UNION = """\
The paper counts only the weights that one mask keeps, and does not count the masks. No file can be as small as in the paper: the masks of
different layers keep different weights, together {share:.1%} of the shared weights. An export stores the masks and the trained tensors. It
does not store random weights, because they can be drawn again from the seed."""


def add_parser(commands) -> None:
    from .plan import add_dictionary_sizes

    parser = commands.add_parser(
        "size",
        help="print the cost of a model, its training and its exports in bytes",
        description=HELP,
    )
    parser.add_argument("model", metavar="CHECKPOINT|ARCH", help="a checkpoint, an export, or an architecture")
    add_dictionary_sizes(parser)
    parser.set_defaults(run=run, takes_fairseq_flags=True)


def run(known, fairseq_flags):
    from fairseq.models import ARCH_MODEL_REGISTRY

    from ..checkpoint.ledger import ledger

    if known.model in ARCH_MODEL_REGISTRY and not os.path.isfile(known.model):
        from ..checkpoint.dry_build import build_arch

        model = build_arch(known.model, fairseq_flags, known.source_words, known.target_words)
        return describe(ledger(model), exportable=hasattr(model, "recipes"))
    if fairseq_flags:
        raise InputError(
            f"{' '.join(fairseq_flags)}: flags can only be given for an architecture, but {known.model} is not an architecture"
        )
    for side in ("source", "target"):
        if (words := vars(known)[f"{side}_words"]) is not None:
            raise InputError(
                f"--{side}-words {words}: can only be given for an architecture, but {known.model} is not an architecture"
            )
    if not os.path.exists(known.model):
        raise InputError(f"CHECKPOINT|ARCH {known.model}: neither a file nor an architecture")
    check_file("CHECKPOINT|ARCH", known.model)
    from ..checkpoint.meta_checkpoint import open_checkpoint

    checkpoint = open_checkpoint(known.model)
    measured = [("this file", Path(known.model).stat().st_size), *_contents(known.model), *_optimizer(checkpoint)]
    described = describe(checkpoint.ledger, measured, exportable=hasattr(checkpoint.model, "recipes"))
    described += _random_tensors(known.model)
    return f"{described}\n\n{_identifying_names(known.model, checkpoint)}"


def _identifying_names(path, checkpoint) -> str:
    """List the paths and names in a file's configuration and SentencePiece model that could identify the author."""
    from ..checkpoint import anonymize, export_file
    from ..checkpoint.export import as_json

    lines = [f"{option} {value}" for option, value in anonymize.identifying_options(as_json(checkpoint.config))]
    text = export_file.text_of(path)
    if text is not None and text.kind == "sentencepiece":
        lines += [f"SentencePiece model: {name}" for name in anonymize.names_in_sentencepiece(text.model)]
    if not lines:
        return "The file contains no path, host name or project name that identifies its author."
    return "\n".join(
        [
            "The file contains the following paths, hosts and projects. A new export of the model will not contain them.",
            *(f"  {in_one_line(line)}" for line in lines),
        ]
    )


def describe(found, measured=(), exportable=True) -> str:
    """Format two tables: the tensors of a model, and their cost in bytes.

    Args:
        found: the ``Ledger``, a list of the model's tensors with their roles and sizes.
        measured: further lines (text, bytes) for the second table.
        exportable: whether ``fairseq-reservoir export`` supports the model.
    """
    masked = any(item.keep_ratios for item in found.items)
    costs = [
        *measured,
        ("training: weights, gradients, Adam's moments (float32)", found.training_bytes),
        ("Adam's moments alone", found.optimizer_bytes),
        ("fairseq's checkpoint: weights, Adam's moments", found.checkpoint_bytes),
        ("inference: weights in memory", found.inference_bytes),
    ]
    for dtype in ("fp32", "fp16") if exportable else ():
        for flag in ("", " --regenerate", " --with-weights"):
            options = {flag.strip(" -").replace("-", "_"): True} if flag else {}
            costs.append((f"export --dtype {dtype}{flag}", found.export_bytes(dtype, **options)))
        if found.saved_by_entropy:
            cost = found.export_bytes(dtype) - found.saved_by_entropy
            what = "at most" if found.with_roles("rounded") else "masks at their entropy"
            costs.append((f"export --dtype {dtype} --compact, {what}", cost))
    if masked:
        costs.append(("as the paper counts", round(found.papers_bytes)))
    lines = _table(("tensors", "entries", "bytes"), _groups(found))
    lines += ["", *_table(("cost of the data", "bytes"), [(text, f"{cost:,}") for text, cost in costs])]
    if exportable:
        lines.append("An export also contains a description of about 10 to 40 KiB.")
    if any(len(item.keep_ratios) > 1 for item in found.items):
        lines.append(_UNION.format(share=found.share_in_use))
    return "\n".join(lines)


def _groups(found):
    """Return a line (name, entries, bytes) for each group of tensors in the model, and a line with the total."""
    groups = {}
    for item in found.items:
        if item.role != "tied":
            entries, size = groups.get(_group(item), (0, 0))
            groups[_group(item)] = (
                entries + item.size,
                size + (item.export_bytes() if item.role in ("mask", "rounded") else item.bytes),
            )
    lines = [(what, f"{entries:,}", f"{size:,}") for what, (entries, size) in sorted(groups.items())]
    total = [sum(column) for column in zip(*groups.values())]
    return [*lines, ("total", *(f"{number:,}" for number in total))]


def _group(item):
    if item.role == "random":
        kind = "equal on every machine" if item.recipe.exact else "orthogonal or normal"
        return f"random weights, {kind}{' (embeddings)' * item.is_embedding}"
    if item.role == "mask":
        kind = f"masks, {item.bits} bit{'s' * (item.bits > 1)} per entry{' (embeddings)' * item.is_embedding}"
        return f"{kind}, entropy {item.entropy:.2f}" if item.entropy else kind
    if item.role == "rounded":
        per = "a scale per row" if item.scales > 1 else "one scale per matrix"
        what = f"{item.levels}, {item.bits} bit{'s' * (item.bits > 1)} per weight, {per}"
        return f"trained weights, {what}{' (embeddings)' * item.is_embedding}, entropy at most {item.entropy:.2f}"
    if item.role == "buffer":
        return "buffers, such as version numbers"
    if item.role == "training":
        return "estimators of --backskip, for training only"
    return f"{item.role} {'embeddings' if item.is_embedding else 'weights'}"


def _contents(path):
    """Return lines with sizes in bytes: an export's tensors, their entropy, its description and its dictionaries."""
    from ..checkpoint import compact, export_file, packed_file

    if not export_file.is_export(path):
        return []
    stored = export_file.stored_bytes(path)
    entropy = compact.entropy_bytes(*packed_file.read(path))
    text = export_file.text_bytes(path)
    described = Path(path).stat().st_size - stored - text
    lines = [("tensors in it", stored), ("entropy of these tensors", entropy), ("description in it", described)]
    return [*lines, ("dictionaries and word pieces in it", text)] if text else lines


def _random_tensors(path):
    """Return a line with the numbers of random tensors that an export stores and omits; "" for a checkpoint."""
    from ..checkpoint import export_file, packed_file

    if not export_file.is_export(path):
        return ""
    body, tensors = packed_file.read(path)
    stored = sum(name in tensors for name in body["random"])
    drawn = len(body["random"]) - stored
    return f"\nThis export stores {stored} of {stored + drawn} random tensors. Loading the export draws {drawn} from the seed."


def _optimizer(checkpoint):
    """Return a list with one line, the size in bytes of a file's optimizer state. Without an optimizer state, the list is empty."""
    import torch

    def tensors(state):
        if isinstance(state, torch.Tensor):
            yield state
        elif isinstance(state, (dict, list, tuple)):
            for part in state.values() if isinstance(state, dict) else state:
                yield from tensors(part)

    size = sum(t.numel() * t.element_size() for t in tensors(checkpoint.state.get("last_optimizer_state")))
    return [("optimizer state in it", size)] if size else []


def _table(head, lines):
    widths = [max(map(len, column)) for column in zip(head, *lines)]
    return [
        "  ".join(cell.ljust(w) if i == 0 else cell.rjust(w) for i, (cell, w) in enumerate(zip(line, widths)))
        for line in (head, *lines)
    ]
