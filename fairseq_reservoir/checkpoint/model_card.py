"""Write a model card for an export: Markdown with Hugging Face's metadata header (YAML).

The facts about the model come from the export, from which paths, host names and project names were removed. Licence, data and scores come
from the user's flags. If a flag is missing, the licence or the scores are omitted, and the section on the data is "Not stated.".
"""

import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ..errors import InputError, flag_of
from ..files import check_file, check_out, read_text, replacing, why
from ..options.reading import read
from ..options.supermask_options import MaskOptions
from ..text.parts import TextParts
from . import export_file
from .meta_checkpoint import Checkpoint, open_checkpoint

SUFFIX = ".md"
_MOST_BYTES = 2**20
# Shell expression for the path of the plugin. It works in any folder.
_USER_DIR = "\"$(python -c 'import fairseq_reservoir; print(*fairseq_reservoir.__path__)')\""
_TASKS = {"translation": "translation", "language_modeling": "text-generation", "masked_lm": "fill-mask"}


@dataclass(frozen=True)
class CardFlags:
    """Flags of ``fairseq-reservoir export`` for the model card. A flag that is not given is None.

    Attributes:
        card: path of the card.
        card_license: licence, such as ``mit``.
        card_data: description of the training data.
        card_bleu: file with the JSON that sacrebleu prints. The card contains the score and the signature.
    """

    card: str | None = None
    card_license: str | None = None
    card_data: str | None = None
    card_bleu: str | None = None


def check_flags(flags: CardFlags, force: bool, *inputs: str) -> list[dict[str, Any]]:
    """Refuse invalid flags before the export is written.

    Args:
        flags: the flags.
        force: whether an existing card may be replaced.
        inputs: files that the card must not replace.

    Returns:
        The scores of ``--card-bleu``; [] without it.

    Raises:
        InputError: another flag of the card is given without ``--card``, the card cannot be written, or the file of ``--card-bleu`` is not
            JSON from sacrebleu.
    """
    if flags.card is None:
        for name, value in vars(flags).items():
            if value is not None:
                raise InputError(f"{flag_of(name)} {value}: has no effect without --card FILE{SUFFIX}")
        return []
    check_out(flags.card, force, SUFFIX, *inputs, what="--card")
    return _scores(flags.card_bleu) if flags.card_bleu is not None else []


def _scores(path: str) -> list[dict[str, Any]]:
    """Read the JSON of ``sacrebleu REFERENCES -i TRANSLATIONS``: an object for one metric, or a list of objects."""
    check_file("--card-bleu", path)
    try:
        found = json.loads(read_text(path, _MOST_BYTES))
    except (ValueError, OSError, RecursionError) as error:
        raise InputError(f"--card-bleu {path}: not the JSON that sacrebleu prints ({why(error)})") from error
    scores = found if isinstance(found, list) else [found]
    for score in scores:
        if not isinstance(score, dict) or not all(
            isinstance(score.get(key), kind)
            for key, kind in (("name", str), ("score", (int, float)), ("signature", str))
        ):
            raise InputError(
                f"--card-bleu {path}: name, score or signature is missing; write the file with `sacrebleu REFERENCES -i TRANSLATIONS`"
            )
    return scores


def write(export: str, flags: CardFlags, scores: list[dict[str, Any]]) -> None:
    """Write the card atomically.

    Args:
        export: path of the export.
        flags: the flags. ``card`` must not be None.
        scores: the result of ``check_flags``.

    Raises:
        InputError: the card cannot be written.
    """
    text = compose(export, flags, scores)
    with replacing(str(flags.card), "--card {path}: cannot be written ({why})") as temporary:
        temporary.write_text(text, encoding="utf-8")


def compose(export: str, flags: CardFlags, scores: list[dict[str, Any]]) -> str:
    """Return the text of the card. The arguments are those of ``write``."""
    source, text = open_checkpoint(export), export_file.text_of(export)
    languages = _languages(source, text)
    of = " to ".join(languages)
    parts = [
        f"---\n{_header(source, languages, flags, scores)}---",
        f"# {_plain(_title(source, languages))}",
        f"A model{f' that translates {of}' if of else ''}, trained with fairseq and the plugin fairseq_reservoir.",
        f"## Model\n\n{_table(export, source, languages)}",
        f"Layers and their state:\n\n```\n{source.model.slot_table}\n```",
        f"## Data\n\n{_plain(flags.card_data) if flags.card_data else 'Not stated.'}",
    ]
    if scores:
        lines = [f"| {_cell(s['name'])} | {s['score']} | `{_cell(s['signature'])}` |" for s in scores]
        parts.append("\n".join(["## Scores\n", "| metric | score | sacrebleu's signature |", "|---|---:|---|", *lines]))
    parts.append(f"## Use\n\n{_use(export, source, text)}")
    return "\n\n".join(parts) + "\n"


def _languages(source: Checkpoint, text: TextParts | None) -> list[str]:
    if text:
        return list(text.languages)
    task = source.config.task
    names = [getattr(task, f"{side}_lang", None) for side in ("source", "target")]
    return [name for name in names if isinstance(name, str)]


def _title(source: Checkpoint, languages: list[str]) -> str:
    """Return the languages, the architecture and the layer plans, such as "en-de, reservoir transformer, LFLFL + LL"."""
    model = source.config.model
    plans = [getattr(model, f"reservoir_{stack}", None) for stack in ("encoder", "decoder")]
    parts = ["-".join(languages), model._name.replace("_", " "), " + ".join(filter(None, plans))]
    return ", ".join(filter(None, parts))


def _task(source: Checkpoint) -> str:
    task = source.config.task
    return str(getattr(task, "_name", None) or getattr(task, "task", None))


def _header(source: Checkpoint, languages: list[str], flags: CardFlags, scores: list[dict[str, Any]]) -> str:
    """Return the metadata of the card as YAML. Keys without a value are left out."""
    metrics = sorted({"sacrebleu" if score["name"] == "BLEU" else score["name"].lower() for score in scores})
    found = {
        "language": list(dict.fromkeys(languages)),
        "license": flags.card_license,
        "library_name": "fairseq-reservoir",
        "pipeline_tag": _TASKS.get(_task(source)),
        "tags": ["fairseq", "fairseq-reservoir", source.config.model._name.replace("_", "-")],
        "metrics": metrics,
    }
    kept = {name: value for name, value in found.items() if value}
    return yaml.safe_dump(kept, sort_keys=False, allow_unicode=True)


def _table(export: str, source: Checkpoint, languages: list[str]) -> str:
    """Return a Markdown table of languages, architecture, plan, masks, parameters and file size."""
    table: Any = source.model.slot_table
    model, ledger = source.config.model, source.ledger
    rows = {
        "Languages": " to ".join(languages),
        "Architecture": f"`{model._name}`",
        "Encoder's plan": getattr(model, "reservoir_encoder", None),
        "Decoder's plan": getattr(model, "reservoir_decoder", None),
        "Frozen components": getattr(model, "freeze", None),
        "Masks": _masks(source) if ledger.with_roles("mask") else None,
        "Rounded weights": getattr(model, "mask_trained_weights", None) if ledger.with_roles("rounded") else None,
        "Parameters": f"{table.parameters:,}, {table.trained_parameters:,} of them trained",
        "Updates": f"{source.num_updates:,}",
        "File": f"`{_cell(Path(export).name)}`, {Path(export).stat().st_size:,} bytes",
    }
    lines = [f"| {name} | {value} |" for name, value in rows.items() if value]
    return "\n".join(["| | |", "|---|---|", *lines])


def _masks(source: Checkpoint) -> str:
    chosen = read(MaskOptions, source.config.model)
    entries = sum(item.size for item in source.ledger.with_roles("mask"))
    coats = f", nested masks with keep ratios {chosen.mask_coats}" if chosen.mask_coats else ""
    return f"{chosen.mask_kind}, {entries:,} entries, keep ratio {chosen.mask_keep_ratio}{coats}"


def _use(export: str, source: Checkpoint, text: TextParts | None) -> str:
    """Return instructions for installing the plugin, and the commands for the model's task."""
    name = Path(export).name
    file = shlex.quote(f"./{name}" if name.startswith("-") else name)
    if text:
        commands = [f"echo 'Text to translate' | fairseq-reservoir translate {file}"]
        commands += [f"fairseq-reservoir translate {file} < text.{text.languages[0]} > text.{text.languages[1]}"]
    elif (task := _task(source)) == "translation":
        commands = [f"fairseq-generate data-bin --user-dir {_USER_DIR} --path {file}"]
    elif task == "language_modeling":
        commands = [f"fairseq-eval-lm data-bin --user-dir {_USER_DIR} --path {file}"]
    else:
        commands = [f"fairseq-reservoir size {file}"]
    install = "Install the plugin fairseq_reservoir: `bash scripts/setup.sh && . .venv/bin/activate` in a clone of its repository."
    if text:
        install = (
            "Install the plugin fairseq_reservoir: `pip install .` in a clone of its repository. If `translate` then needs torch, run "
            "`bash scripts/setup.sh` in the clone."
        )
    if export_file.is_compact(export_file.read_body(export)):
        install += " The file is compressed: also run `pip install constriction`."
    if "data-bin" in commands[0]:
        install += " `data-bin` is the output folder of fairseq-preprocess, run with the training dictionaries."
    return "\n".join([f"{install} Then run this in the folder of the model file:", "", "```sh", *commands, "```"])


def _plain(text: str) -> str:
    """Return text as one paragraph that cannot start a heading or a code block."""
    return " ".join(text.split()).lstrip("#-")


def _cell(text: str) -> str:
    """Return text for a cell of a Markdown table. Backticks would end code and vertical bars would end the cell, so both are replaced."""
    return " ".join(text.split()).replace("`", "'").replace("|", "\\|")
