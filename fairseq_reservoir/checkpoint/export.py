"""Convert a checkpoint into an export.

The export contains trained tensors, the seed of random tensors, and packed bits of masks and rounded weights.
"""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from fairseq.tasks.translation import TranslationTask
from omegaconf import OmegaConf

from ..errors import InputError, optional_package
from ..files import check_out
from ..plan import written_table
from ..random_tensors import digest
from ..random_tensors.philox import GENERATOR
from ..random_tensors.recipe import Recipe
from ..text import collect
from ..text.collect import TextFlags as TextFlags  # an argument of ``export``
from ..text.parts import TextParts
from . import anonymize, compact as compact_form, dictionaries, entropy_code, export_file, packed_file
from .ledger import WIDTHS, Item, Ledger
from .meta_checkpoint import Checkpoint, dictionary_sizes, open_checkpoint
from .origin import dictionaries_of
from .packed_masks import pack_levels, pack_masks

_ROUNDINGS = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


@dataclass(frozen=True)
class Written:
    """The result of ``export``.

    Attributes:
        path: path of the file.
        bytes: size of the file.
        predicted_bytes: size of the tensor data in bytes, as the ledger predicts it.
        entropy_bytes: entropy of the tensor data, in bytes.
        stored: number of random tensors that the file contains.
        drawn_again: number of random tensors that loading draws from the seed.
        text_bytes: size of the dictionaries and the subword model in the file.
    """

    path: str
    bytes: int
    predicted_bytes: int
    entropy_bytes: int
    stored: int
    drawn_again: int
    text_bytes: int = 0

    def __str__(self) -> str:
        return f"{self.path}: {self.bytes:,} bytes"

    @property
    def details(self) -> str:
        """One line with the size of the tensors, their entropy, the number of random tensors and the size of the text parts."""
        text = (
            f"; {self.text_bytes:,} bytes of the file are dictionaries and the subword model" if self.text_bytes else ""
        )
        return (
            f"{self.path}: {self.bytes:,} bytes ({self.predicted_bytes:,} of data, whose"
            f" entropy is {self.entropy_bytes:,}); the file stores {self.stored} of {self.stored + self.drawn_again}"
            f" random tensors, loading draws {self.drawn_again} from the seed{text}"
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
    """Write an export of a checkpoint, without paths and names of this machine (``anonymize``).

    By default, the file omits the random tensors that every machine draws with the same bits. Loading the file draws them again. Orthogonal
    and normal tensors are stored, because they agree across machines only to about 1e-6. ``dtype`` does not change random tensors.

    Args:
        checkpoint: path of a checkpoint of this plugin's models.
        out: file to write, ending in .safetensors.
        dtype: dtype of the stored tensors that are not random (fp32, fp16 or bf16).
        with_weights: store all random tensors.
        regenerate: store no random tensors.
        force: replace ``out`` if it exists.
        data: folder of the dictionaries, by default the one in the checkpoint.
        compact: entropy-code all stored tensors (``compact``). Reading the file then needs constriction.
        text: dictionaries and subword model to include (``text.parts``), so that text can be translated with this file alone. By default,
            the text parts are copied if ``checkpoint`` is an export.

    Raises:
        InputError: a file or an option is not usable, a package is not installed, or the dictionaries differ from those of the training.
            With ``regenerate``: a random tensor drawn on this machine differs in some bits from the tensor in the checkpoint.
    """
    check_out(out, force, export_file.SUFFIX, checkpoint)
    _check_options(dtype, with_weights, regenerate, compact)
    text = text or TextFlags()
    pieces = collect.check_flags(text)
    source = open_checkpoint(checkpoint)
    if not hasattr(source.model, "recipes"):
        name = source.config.model._name
        raise InputError(f"CHECKPOINT {checkpoint}: {name} is not a model of this plugin, so it has no random tensors")
    trained, text_parts = _dictionaries_and_text(source, checkpoint, text, pieces, data)
    if text_parts and text_parts.kind == "sentencepiece":
        text_parts = replace(text_parts, model=anonymize.sentencepiece_without_names(text_parts.model))
    ledger = source.ledger
    random, kept = _random(source, ledger, with_weights, regenerate)
    body = _description(source, ledger, dtype, random, trained)
    tensors = _tensors(source, ledger, dtype) | kept
    packed_file.write(out, body, tensors, compact, text_parts)
    return Written(
        path=str(out),
        bytes=Path(out).stat().st_size,
        predicted_bytes=ledger.export_bytes(dtype, with_weights, regenerate),
        entropy_bytes=compact_form.entropy_bytes(body, tensors),
        stored=len(kept),
        drawn_again=len(random) - len(kept),
        text_bytes=export_file.text_bytes(out),
    )


def _check_options(dtype: str, with_weights: bool, regenerate: bool, compact: bool) -> None:
    if with_weights and regenerate:
        raise InputError(
            "--with-weights --regenerate: --with-weights stores all random tensors, --regenerate stores none; remove one of these flags"
        )
    if dtype not in WIDTHS:
        raise InputError(f"--dtype {dtype}: choose from {', '.join(WIDTHS)}")
    if compact:
        optional_package(entropy_code.PACKAGE, "--compact needs")


def _tensors(source: Checkpoint, ledger: Ledger, dtype: str) -> dict[str, torch.Tensor]:
    """Return the stored tensors that are not random."""
    tensors = {item.name: _stored(source, item, dtype) for item in ledger.with_roles("trained", "frozen", "buffer")}
    if ledger.with_roles("mask", "rounded"):
        model = source.built()
        packed, scales = pack_levels(model, ledger)
        tensors |= pack_masks(model, ledger) | packed
        tensors |= {name: _narrowed(name, tensor, dtype) for name, tensor in scales.items()}
    return tensors


def _description(
    source: Checkpoint, ledger: Ledger, dtype: str, random: dict[str, Any], trained: dict[str, Any]
) -> dict[str, Any]:
    """Return the description of an export.

    Args:
        source: the checkpoint.
        ledger: ledger of its model.
        dtype: dtype of the stored tensors that are not random.
        random: descriptions of the random tensors.
        trained: description of the training dictionaries.
    """
    table: Any = source.model.slot_table
    body = {
        "seed": table.seed,
        "generator": GENERATOR,
        "dtype": dtype,
        "random": random,
        "masks": {i.name: {"shape": i.shape, "bits": i.bits, "lowest": i.lowest} for i in ledger.with_roles("mask")},
        "tied": {item.name: item.owner for item in ledger.with_roles("tied")},
        "slot_table": written_table.as_json(table),
        "config": anonymize.anonymized(_with_languages(as_json(source.config))),
        "dictionaries": trained,
        "num_updates": source.num_updates,
    }
    if rounded := ledger.with_roles("rounded"):
        body["levels"] = {i.name: {"shape": i.shape, "kind": i.levels.kind} for i in rounded if i.levels}
    return body


def _dictionaries_and_text(
    source: Checkpoint, checkpoint: str, text: TextFlags, pieces: bytes, data: str | None
) -> tuple[dict[str, dict[str, Any]], TextParts | None]:
    """Return two values: the description of the training dictionaries, and the text parts (None without text).

    Dictionaries that are read from a folder are compared with the training dictionaries.
    """
    trained = dictionaries_of(source.state) or (dictionaries.where_trained(source.config) if data else {})
    text_parts = export_file.text_of(checkpoint)
    if text_parts is not None and not text.given and not data:
        return trained, text_parts
    # An export does not name a data folder.
    if trained and not text.given and not data and not source.config.task.data:
        return trained, None
    task = dictionaries.task_of_config(source.config, data)
    where = dictionaries.folder_of(source.config, data)
    dictionaries.check(where, trained, task)
    if isinstance(task, TranslationTask):  # a checkpoint saved by a script has no hashes of its dictionaries
        found = len(task.source_dictionary), len(task.target_dictionary)
        for side, entries, rows in zip(("source", "target"), found, dictionary_sizes(source.tensors)):
            if entries != rows:
                raise InputError(
                    f"{where}: the {side} dictionary has {entries:,} entries, but the model needs {rows:,}"
                )
    return dictionaries.describe(task), collect.collect(text, pieces, task) if text.given else text_parts


def _stored(source: Checkpoint, item: Item, dtype: str) -> torch.Tensor:
    tensor = source.tensors[item.name]
    if item.role == "buffer" or not tensor.is_floating_point():
        return tensor
    return _narrowed(item.name, tensor, dtype)


def _narrowed(name: str, tensor: torch.Tensor, dtype: str) -> torch.Tensor:
    stored = tensor.to(_ROUNDINGS[dtype])
    if bool(stored.isinf().sum() > tensor.isinf().sum()):
        largest = tensor.abs().max().item()
        raise InputError(
            f"--dtype {dtype}: {name} has entries up to {largest:.3g}, more than {dtype} can represent; use bf16 or fp32"
        )
    return stored


def _random(
    source: Checkpoint, ledger: Ledger, with_weights: bool, regenerate: bool
) -> tuple[dict[str, dict[str, Any]], dict[str, torch.Tensor]]:
    """Return the descriptions of all random tensors, and the random tensors to store."""
    table: Any = source.model.slot_table
    described, kept = {}, {}
    for item in ledger.with_roles("random"):
        tensor = source.tensors[item.name]
        recipe = item.drawn
        # The hash is that of the float32 tensor, as it is after loading. A script may have saved the checkpoint in half precision.
        entry = {**recipe.as_json(), "sha256": digest.of_tensor(tensor.float())}
        if recipe.name == item.name:
            del entry["name"]
        left_out = not with_weights and (regenerate or recipe.exact)
        rounding = _rounding(recipe, entry, table.seed) if left_out else None
        if left_out and rounding is None and regenerate:
            raise InputError(
                f"--regenerate: {item.name}, drawn on this machine, differs from the tensor in the checkpoint; remove --regenerate"
                " to store the tensor"
            )
        if rounding is None:
            kept[item.name] = tensor
        elif rounding != "fp32":
            entry["rounded"] = rounding
        described[item.name] = entry
    return described, kept


def _rounding(recipe: Recipe, entry: dict[str, Any], seed: int) -> str | None:
    """Return the dtype in which the drawn tensor equals the checkpoint's tensor; None if they differ in every dtype."""
    drawn = recipe.draw(seed)
    for name, kind in _ROUNDINGS.items():
        if digest.of_tensor(drawn.to(kind).float()) == entry["sha256"]:
            return name
    return None


def _with_languages(config: dict[str, Any]) -> dict[str, Any]:
    """Add the language pair to a configuration. fairseq would infer it from the data folder, but an export does not name that folder."""
    task = config["task"]
    options = task.get("__namespace__", task)
    if "source_lang" in options and None in (options["source_lang"], options.get("target_lang")):
        source, target = dictionaries.languages_in(options.get("data"))
        options |= {"source_lang": source, "target_lang": target} if source and target else {}
    return config


def as_json(config: Any) -> dict[str, Any]:
    """Return fairseq's configuration as JSON. Each Namespace becomes an object with the single key ``__namespace__``."""
    if OmegaConf.is_config(config):
        config = OmegaConf.to_container(config, resolve=True, enum_to_str=True)
    written: dict[str, Any] = json.loads(json.dumps(config, default=lambda value: {"__namespace__": vars(value)}))
    return written
