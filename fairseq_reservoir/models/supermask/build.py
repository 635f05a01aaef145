"""Freezes a built supermask model and attaches its slot table, before any optimizer exists."""

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ...checkpoint.pretrained_embeddings import read_embeddings, tensors_follow
from ...errors import InputError, flag_of
from ...freezing.description import NOT_COMPARED
from ...freezing.reservoir_build import kept_layers
from ...freezing.table_of_model import table_of, tied_names
from ...masks.levels import Levels
from ...masks.masked_embedding import MaskedEmbedding
from ...masks.masked_weight import MaskedWeight, share_mask_cache
from ...masks.rounded_weight import RoundedEmbedding, rounded_modules
from ...options.supermask_options import MaskOptions, whole_embeddings
from ...plan.freeze_spec import SHARED_LAYER, layer_of, plain
from ...plan.layer_plan import Slot, slots
from ...plan.slot_table import SlotTable
from ...random_tensors import philox
from ...random_tensors.fill import draw, recipes_in
from ...random_tensors.recipe import Recipe
from .stacks import MaskedParts, masked_embedding

# Options that a checkpoint must agree with; ``freeze`` matters to resuming alone, ``regenerate_weights`` to inference, ``fast`` to speed.
_FREE = ("freeze", "regenerate_weights", "fast")
# Not written where it is not given, so that descriptions are those of before there was such an option.
_IF_GIVEN = ("mask_trained_weights", "mask_row_gain")
_DESCRIBED = [name for name in MaskOptions.__dataclass_fields__ if name not in _FREE and not name.startswith("_")]


def description_flags(stacks) -> dict[str, str]:
    """The fields of a supermask model's description, each with its flag; see ``DescribedInCheckpoint``."""
    return {
        **{f"{stack}_layers": f"--{stack}-layers" for stack in stacks},
        "generator": "generator of frozen tensors",
        **{name: flag_of(name) for name in _DESCRIBED if name not in NOT_COMPARED},
    }


def mask_plans(options, depths: dict[str, int]) -> dict[str, tuple[Slot, ...]]:
    """The slots of each stack of ``depths``, all L; depths that ``options`` do not have are filled in there."""
    for stack, depth in depths.items():
        setattr(options, f"{stack}_layers", getattr(options, f"{stack}_layers") or depth)
    plans = {}
    for stack in depths:
        to_keep = f"{stack}_layers_to_keep"
        plans[stack] = slots("L" * getattr(options, f"{stack}_layers"), getattr(options, to_keep), flag_of(to_keep))
    return plans


def finish_supermask(model, plans: dict[str, tuple[Slot, ...]], options):
    """Makes a freshly built model a supermask model: one mask cache, slot table, recipes, description; returns it.

    Args:
        model: built of ``MaskedParts``, a ``DescribedInCheckpoint``.
        plans: the slots of each stack.
        options: its complete options.
    """
    decoder: Any = getattr(model, "decoder", None)
    projection = getattr(decoder, "output_projection", None)
    if options.mask_embeddings == "frozen" and projection is not None and not decoder.share_input_output_embed:
        _draw_as_fairseq(projection, "decoder.output_projection.weight", options.mask_seed)
    share_mask_cache(model)
    refuse_pin_of_everything(model, options)
    model.slot_table = compile_mask_table(model, plans, options)
    model.recipes = recipes_in(model)
    model.regenerate_weights = options.regenerate_weights
    description = {name: getattr(options, name) for name in (*_DESCRIBED, "freeze")} | {"generator": philox.GENERATOR}
    description = {name: value for name, value in description.items() if name not in _IF_GIVEN or value}
    kept = kept_layers(options)
    model.remember_description(
        description | {f"{stack}_layers": getattr(options, f"{stack}_layers") for stack in plans}, kept
    )
    if options.mask_scope == "global":
        model.whole_only = (
            "with --mask-scope global a mask is chosen among the scores of all layers together, so that without some of them those "
            "that are left would get other masks; leave it out, or train with it from the start"
        )
    return model


def refuse_pin_of_everything(model, options) -> None:
    """A share of a row below one is rounded, for short rows to all of it, and a matrix without scores trains nothing.

    Raises:
        InputError: ``--mask-pin`` leaves nothing to learn in a matrix.
    """
    full = [(name, m) for name, m in model.named_modules() if isinstance(m, MaskedWeight) and m.scores is None]
    if full and not options.mask_random:
        name, columns = full[0][0], min(m.weight_shape[1] for _, m in full)
        raise InputError(
            f"--mask-pin {options.mask_pin}: leaves nothing to learn in {name}; "
            f"with rows of {columns} give less than {1 - 0.5 / columns:.6g}"
        )


def compile_mask_table(model, plans, options) -> SlotTable:
    """The slot table of a supermask model; sets every ``requires_grad`` from it.

    A layer's trained tensors are the scores of its masks; the random weights stand in rows of their own.
    """
    frozen = [options.freeze, "ln" if options.mask_layernorm == "plain" else None]
    frozen.append(getattr(model, "frozen_with_embeddings", {"frozen": "emb,out"}).get(options.mask_embeddings))
    try:
        table = table_of(
            model,
            plans,
            options.mask_seed,
            freeze=",".join(filter(None, frozen)) or None,
            shared=_shared(model, plans),
            kept=kept_layers(options),
            more_follows=hasattr(model, "register_classification_head"),
        )
    except InputError as error:
        if options.freeze:
            raise
        # Only this is left to be wrong with it, and nobody has given the --freeze that the error speaks of.
        given = f"--mask-random --mask-layernorm plain --mask-embeddings {options.mask_embeddings}"
        raise InputError(f"{given} freezes every parameter: leave something to train") from error
    parameters = dict(model.named_parameters())
    for entry in table.entries:
        if entry.name in parameters:
            parameters[entry.name].requires_grad_(entry.trained)
    rounded = {f"{name}.latent": module.levels for name, module in rounded_modules(model).items()}
    return _with_levels(table, rounded, tied_names(model, parameters)) if rounded else table


def _with_levels(table: SlotTable, rounded: dict[str, Levels], tied) -> SlotTable:
    """The table with what rounded matrices are rounded to, by their latent weights, and which layers have none of their own."""
    sharing = {layer for alias in tied if (layer := layer_of(alias))}
    rows = []
    for row in table.rows:
        stack, _, place = row.place.partition(".")
        levels = next((rounded[entry.name] for entry in row.entries if entry.name in rounded), None)
        if place == SHARED_LAYER:
            kind = f"one layer at {sum(layer[0] == stack for layer in sharing)} depths, {levels}"
        elif levels:
            kind = f"{row.kind}, {levels}"
        else:
            kind = f"{row.kind}, matrices of {SHARED_LAYER}" if layer_of(row.place) in sharing else row.kind
        rows.append(replace(row, kind=kind))
    return replace(table, rows=tuple(rows))


def _shared(model, plans):
    """(name, shape, number of layers) of every random weight."""
    for name, buffer in model.named_buffers():
        stack, place = plain(name).split(".")[:2] if "." in name else ("", "")
        if place == "random_layer":
            yield name, tuple(buffer.shape), len(plans[stack])
        elif name.endswith(".frozen_weight"):
            yield name, tuple(buffer.shape), 1


def build_embedding(stack: str, cfg, dictionary, embed_dim: int, path: str | None) -> nn.Module:
    """The token embedding of a stack, with the vectors of the file ``path``; see ``new_embedding`` and ``fill_embedding``."""
    embedding = new_embedding(cfg.parts[stack], cfg, dictionary, embed_dim)
    flag = f"--{stack}-embed-path"
    read = path and partial(read_embeddings, path, dictionary, embed_dim, cfg.embed_min_coverage, flag)
    fill_embedding(embedding, stack, cfg, read)
    return embedding


@torch.no_grad()
def new_embedding(
    parts: MaskedParts, options, dictionary, embed_dim: int
) -> MaskedEmbedding | RoundedEmbedding | nn.Embedding:
    """A token embedding: a masked random one, a trained one that is rounded, or an ordinary one to be frozen or trained."""
    if not whole_embeddings(options):
        return masked_embedding(parts, dictionary, embed_dim)
    embedding = nn.Embedding(len(dictionary), embed_dim, padding_idx=dictionary.pad())
    nn.init.normal_(embedding.weight, std=embed_dim**-0.5)
    embedding.weight[dictionary.pad()] = 0
    return embedding


@torch.no_grad()
def fill_embedding(
    embedding: MaskedEmbedding | RoundedEmbedding | nn.Embedding, stack: str, options, read=None, scale: float = 1.0
) -> None:
    """Writes the vectors that the seed or a file gives, in place.

    A frozen embedding is drawn as fairseq draws it, N(0, 1 / embed_dim) with a padding row of 0, but from the seed.

    Args:
        embedding: from ``new_embedding``.
        stack: the name it is drawn under.
        options: the model's.
        read: gives (indices, vectors) that replace rows, under a mask scaled like its random weights. It is not called if
            the tensors of a checkpoint follow anyway.
        scale: factor of the values of a frozen embedding.
    """
    masked = embedding if isinstance(embedding, MaskedEmbedding) else None
    if isinstance(embedding, RoundedEmbedding):
        weight: Tensor = embedding.latent
    else:
        weight = embedding.weight if masked is None else masked.frozen_weight
    if options.mask_embeddings == "frozen":
        _draw_as_fairseq(embedding, f"{stack}.embed_tokens.weight", options.mask_seed, embedding.padding_idx, scale)
    if read:
        # Vectors of a file follow from no seed, also when a checkpoint brings them.
        embedding.recipes = {}
        if not weight.is_meta and not tensors_follow.get():
            indices, vectors = read()
            weight[indices] = vectors * (1.0 if masked is None else masked.choices.gain)
    weight[embedding.padding_idx] = 0


def _draw_as_fairseq(module, name, seed, padding=None, scale=1.0):
    """Draws the weight of an embedding or output projection as fairseq does, N(0, 1 / width), but from the seed."""
    recipe = Recipe("embedding_normal", name, tuple(module.weight.shape), scale=scale, zero_row=padding)
    draw(module, {"weight": recipe}, seed)
