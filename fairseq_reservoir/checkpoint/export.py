"""Turns a checkpoint into an export: trained tensors, masks and rounded weights as bits, and the seed of what is random."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from fairseq.tasks.translation import TranslationTask
from omegaconf import OmegaConf

from ..errors import InputError
from ..files import check_out
from ..plan import written_table
from ..random_tensors import digest
from ..random_tensors.philox import GENERATOR
from ..random_tensors.recipe import Recipe
from ..text import collect
from ..text.collect import TextFlags
from ..text.parts import TextParts
from . import compact as compact_form, dictionaries, entropy_code, maker, packed_file, reader
from .ledger import WIDTHS, Item, Ledger
from .opened import Checkpoint, dictionary_sizes, open_checkpoint
from .origin import dictionaries_of
from .packed_masks import pack_levels, pack_masks


@dataclass(frozen=True)
class Written:
    """The result of ``export``: the file's size, the bytes of data predicted for it and their entropy, what it holds of the
    random tensors, and the bytes of its text parts."""

    path: str
    bytes: int
    predicted_bytes: int
    entropy_bytes: int
    stored: int
    drawn_again: int
    text_bytes: int = 0

    def __str__(self) -> str:
        text = f"; {self.text_bytes:,} bytes more are dictionaries and pieces" if self.text_bytes else ""
        return (
            f"{self.path}: {self.bytes:,} bytes ({self.predicted_bytes:,} of data, whose"
            f" entropy is {self.entropy_bytes:,}); of {self.stored + self.drawn_again} random"
            f" tensors {self.stored} stored, {self.drawn_again} drawn again from the seed when loaded{text}"
        )


def export(
    checkpoint: str,
    out: str,
    dtype: str = "fp32",
    with_weights: bool = False,
    regenerate: bool = False,
    force: bool = False,
    data: str | None = None,
    compact: bool = False,
    text: TextFlags | None = None,
) -> Written:
    """Writes an export of a checkpoint. Paths and names of the maker's machine are left out (``maker``).

    Random tensors that every machine draws alike are left out and drawn again when the export is loaded; orthogonal and
    normal ones, equal across machines to 1e-6 only, are stored. All of them keep the bits they were trained with, whatever
    ``dtype`` the trained tensors get.

    Args:
        checkpoint: a checkpoint of one of this plugin's models.
        out: file to write, ending in .safetensors.
        dtype: fp32, fp16 or bf16, the type in which tensors that are not random are stored.
        with_weights: store all random tensors.
        regenerate: store none.
        force: replace ``out`` if it exists.
        data: folder of the dictionaries, if not the one that the checkpoint names.
        compact: write masks and numbers near their entropy (``compact``); reading the file needs the package, too.
        text: what the file is to carry so that it translates text without any other (``text.parts``); if not given, what an export
            carries already.

    Raises:
        InputError: a file or an option is not usable, or a package not installed; the dictionaries are not those trained with; with
            ``regenerate``, a tensor drawn here is not the one trained with.
    """
    check_out(out, force, packed_file.SUFFIX, checkpoint)
    if with_weights and regenerate:
        raise InputError("--with-weights --regenerate: give one of them, since one stores what the other leaves out")
    if dtype not in WIDTHS:
        raise InputError(f"--dtype {dtype}: choose from {', '.join(WIDTHS)}")
    if compact:
        entropy_code.package("--compact needs")
    text = text or TextFlags()
    pieces = collect.check_flags(text)
    source = open_checkpoint(checkpoint)
    if not hasattr(source.model, "recipes"):
        name = source.config.model._name
        raise InputError(f"CHECKPOINT {checkpoint}: {name} is not a model of this plugin, nothing in it is random")
    trained, text_parts = _dictionaries_and_text(source, checkpoint, text, pieces, data)
    if text_parts and text_parts.kind == "sentencepiece":
        text_parts = replace(text_parts, model=maker.sentencepiece_without_names(text_parts.model))
    table: Any = source.model.slot_table
    ledger, seed = source.ledger, table.seed
    tensors = {item.name: _stored(source, item, dtype) for item in ledger.of("trained", "frozen", "buffer")}
    if ledger.of("mask", "rounded"):
        model = source.built()
        packed, scales = pack_levels(model, ledger)
        tensors |= pack_masks(model, ledger) | packed
        tensors |= {name: _narrowed(name, tensor, dtype) for name, tensor in scales.items()}
    random, kept = _random(source, ledger, seed, with_weights, regenerate)
    body = {
        "seed": seed,
        "generator": GENERATOR,
        "dtype": dtype,
        "random": random,
        "masks": {i.name: {"shape": i.shape, "bits": i.bits, "lowest": i.lowest} for i in ledger.of("mask")},
        "tied": {item.name: item.owner for item in ledger.of("tied")},
        "slot_table": written_table.as_json(table),
        "config": maker.without_maker(_with_languages(as_json(source.config))),
        "dictionaries": trained,
        "num_updates": source.num_updates,
    }
    if rounded := ledger.of("rounded"):
        body["levels"] = {i.name: {"shape": i.shape, "kind": i.levels.kind} for i in rounded if i.levels}
    packed_file.write(out, body, tensors | kept, compact, text_parts)
    predicted, entropy = (
        ledger.export_bytes(dtype, with_weights, regenerate),
        compact_form.entropy_bytes(body, tensors | kept),
    )
    return Written(
        str(out),
        Path(out).stat().st_size,
        predicted,
        entropy,
        len(kept),
        len(random) - len(kept),
        packed_file.text_bytes(out),
    )


def _dictionaries_and_text(
    source: Checkpoint, checkpoint: str, text: TextFlags, pieces: bytes, data: str | None
) -> tuple[dict[str, dict[str, Any]], TextParts | None]:
    """Hashes of the dictionaries trained with, and the text parts or None; compares the dictionaries where they are read."""
    trained = dictionaries_of(source.state) or (dictionaries.where_trained(source.config) if data else {})
    text_parts = packed_file.text_of(checkpoint)
    if text_parts is not None and not text.given and not data:
        return trained, text_parts
    if (
        trained and not text.given and not data and not source.config.task.data
    ):  # an export, which does not name the folder
        return trained, None
    task = dictionaries.task_of_config(source.config, data)
    where = f"--data {source.config.task.data}"
    dictionaries.check(where, trained, task)
    if isinstance(task, TranslationTask):  # a checkpoint that a script saved does not say what it was trained with
        found = len(task.source_dictionary), len(task.target_dictionary)
        for side, entries, rows in zip(("source", "target"), found, dictionary_sizes(source.tensors)):
            if entries != rows:
                raise InputError(f"{where}: its {side} dictionary has {entries:,} entries, the model {rows:,}")
    return dictionaries.describe(task), collect.collect(text, pieces, task) if text.given else text_parts


def _stored(source: Checkpoint, item: Item, dtype: str) -> torch.Tensor:
    tensor = source.tensors[item.name]
    if item.role == "buffer" or not tensor.is_floating_point():
        return tensor
    return _narrowed(item.name, tensor, dtype)


def _narrowed(name: str, tensor: torch.Tensor, dtype: str) -> torch.Tensor:
    stored = tensor.to(reader.ROUNDINGS[dtype])
    if bool(stored.isinf().sum() > tensor.isinf().sum()):
        largest = tensor.abs().max().item()
        raise InputError(
            f"--dtype {dtype}: {name} has entries up to {largest:.3g}, more than it can hold; take bf16 or fp32"
        )
    return stored


def _random(
    source: Checkpoint, ledger: Ledger, seed: int, with_weights: bool, regenerate: bool
) -> tuple[dict[str, dict[str, Any]], dict[str, torch.Tensor]]:
    """The description of every random tensor, and those that are stored."""
    described, kept = {}, {}
    for item in ledger.of("random"):
        tensor = source.tensors[item.name]
        recipe = item.drawn
        # Of float32, as it is read again: a script may have saved the checkpoint in half precision.
        entry = {**recipe.as_json(), "sha256": digest.of_tensor(tensor.float())}
        if recipe.name == item.name:
            del entry["name"]
        left_out = not with_weights and (regenerate or recipe.exact)
        rounding = _rounding(recipe, entry, seed) if left_out else None
        if left_out and rounding is None and regenerate:
            raise InputError(
                f"--regenerate: {item.name} drawn on this machine differs from the checkpoint's; leave --regenerate out,"
                " then it is stored"
            )
        if rounding is None:
            kept[item.name] = tensor
        elif rounding != "fp32":
            entry["rounded"] = rounding
        described[item.name] = entry
    return described, kept


def _rounding(recipe: Recipe, entry: dict[str, Any], seed: int) -> str | None:
    """The type to which the drawn tensor has to be rounded to be the checkpoint's, None if it is another tensor."""
    drawn = recipe.draw(seed)
    for name, kind in reader.ROUNDINGS.items():
        if digest.of_tensor(drawn.to(kind).float()) == entry["sha256"]:
            return name
    return None


def _with_languages(config: dict[str, Any]) -> dict[str, Any]:
    """Add the language pair, which fairseq reads from the data folder where no flag names it: an export does not name that folder."""
    task = config["task"]
    options = task.get("__namespace__", task)
    if "source_lang" in options and None in (options["source_lang"], options.get("target_lang")):
        source, target = dictionaries.languages_in(options.get("data"))
        options |= {"source_lang": source, "target_lang": target} if source and target else {}
    return config


def as_json(config: Any) -> dict[str, Any]:
    """fairseq's configuration; groups that are flags of the command line have the one key ``__namespace__``."""
    if OmegaConf.is_config(config):
        config = OmegaConf.to_container(config, resolve=True, enum_to_str=True)
    written: dict[str, Any] = json.loads(json.dumps(config, default=lambda value: {"__namespace__": vars(value)}))
    return written
