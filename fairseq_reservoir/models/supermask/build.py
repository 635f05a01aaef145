"""Finish a newly built supermask model before an optimizer exists: slot table, freezing, mask cache, embeddings."""

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ...checkpoint.pretrained_embeddings import read_embeddings, values_from_checkpoint
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
from ...plan.table_inputs import FreezeChoices
from ...random_tensors import philox
from ...random_tensors.fill import draw, recipes_in
from ...random_tensors.recipe import Recipe
from .stacks import MaskedParts, masked_embedding

# Options that may have another value than in the checkpoint. ``freeze`` is compared only when training is resumed.
_FREE = ("freeze", "regenerate_weights", "fast", "cuda_graphs", "cuda_graph_buckets")
# Options that a description contains only if they are set, so that other descriptions equal those of earlier versions.
_IF_GIVEN = ("mask_trained_weights", "mask_row_gain")
_DESCRIBED = [name for name in MaskOptions.__dataclass_fields__ if name not in _FREE and not name.startswith("_")]


def description_flags(stacks) -> dict[str, str]:
    """Return the description fields of a supermask model: field -> flag, see ``DescribedInCheckpoint``."""
    return {
        **{f"{stack}_layers": f"--{stack}-layers" for stack in stacks},
        "generator": "generator of frozen tensors",
        **{name: flag_of(name) for name in _DESCRIBED if name not in NOT_COMPARED},
    }


def mask_plans(options, depths: dict[str, int]) -> dict[str, tuple[Slot, ...]]:
    """Return the layer slots of each stack, all with the letter L. Depths that are missing in ``options`` are copied from ``depths``."""
    plans, values = {}, vars(options)
    for stack, depth in depths.items():
        values[f"{stack}_layers"] = values[f"{stack}_layers"] or depth
        to_keep = f"{stack}_layers_to_keep"
        plans[stack] = slots("L" * values[f"{stack}_layers"], values[to_keep], flag_of(to_keep))
    return plans


def finish_supermask(model, plans: dict[str, tuple[Slot, ...]], options):
    """Give a newly built model its mask cache, slot table, recipes and description. Return the model.

    Args:
        model: a ``DescribedInCheckpoint`` built from ``MaskedParts``.
        plans: the slots of each stack.
        options: the model's complete options.
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
    values = vars(options)
    description = {name: values[name] for name in (*_DESCRIBED, "freeze")} | {"generator": philox.GENERATOR}
    description = {name: value for name, value in description.items() if name not in _IF_GIVEN or value}
    kept = kept_layers(options)
    model.remember_description(description | {f"{stack}_layers": values[f"{stack}_layers"] for stack in plans}, kept)
    if options.mask_scope == "global":
        model.whole_only = (
            "with --mask-scope global the scores of all layers are ranked together, so pruning would change the masks of the kept "
            "layers; remove the pruning flag, or start a new training with the pruning flag"
        )
    return model


def refuse_pin_of_everything(model, options) -> None:
    """Refuse a ``--mask-pin`` that pins all mask entries of a matrix. This occurs in short rows, because the number of pinned entries is
    rounded.

    Raises:
        InputError: a matrix has no scores to train.
    """
    full = [(name, m) for name, m in model.named_modules() if isinstance(m, MaskedWeight) and m.scores is None]
    if full and not options.mask_random:
        name, columns = full[0][0], min(m.weight_shape[1] for _, m in full)
        raise InputError(
            f"--mask-pin {options.mask_pin}: pins all mask entries of {name}, so no entry is learned. The shortest rows have only "
            f"{columns} entries; give a value below {1 - 0.5 / columns:.6g}"
        )


def compile_mask_table(model, plans, options) -> SlotTable:
    """Compile the slot table of a supermask model, and set ``requires_grad`` of every parameter from the table.

    The trained tensors of a layer are the scores of its masks. Random weights have their own rows in the table.
    """
    frozen = [options.freeze, "ln" if options.mask_layernorm == "plain" else None]
    frozen.append(getattr(model, "frozen_with_embeddings", {"frozen": "emb,out"}).get(options.mask_embeddings))
    try:
        table = table_of(
            model,
            plans,
            options.mask_seed,
            FreezeChoices(",".join(filter(None, frozen)) or None),
            shared=_shared(model, plans),
            kept=kept_layers(options),
            more_follows=hasattr(model, "register_classification_head"),
        )
    except InputError as error:
        if options.freeze:
            raise
        # Without --freeze, only these flags can be the reason.
        given = f"--mask-random --mask-layernorm plain --mask-embeddings {options.mask_embeddings}"
        raise InputError(f"{given} freezes every parameter; leave at least one parameter to train") from error
    parameters = dict(model.named_parameters())
    for entry in table.entries:
        if entry.name in parameters:
            parameters[entry.name].requires_grad_(entry.trained)
    rounded = {f"{name}.latent": module.levels for name, module in rounded_modules(model).items()}
    return _with_levels(table, rounded, tied_names(model, parameters)) if rounded else table


def _with_levels(table: SlotTable, rounded: dict[str, Levels], tied) -> SlotTable:
    """Add the levels of rounded matrices to the column ``kind`` of the table, and mark layers with shared matrices."""
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
    """Yield (name, shape, number of layers) of every random weight."""
    for name, buffer in model.named_buffers():
        stack, place = plain(name).split(".")[:2] if "." in name else ("", "")
        if place == "random_layer":
            yield name, tuple(buffer.shape), len(plans[stack])
        elif name.endswith(".frozen_weight"):
            yield name, tuple(buffer.shape), 1


def build_embedding(stack: str, cfg, dictionary, embed_dim: int, path: str | None) -> nn.Module:
    """Build the token embedding of a stack. If ``path`` is given, the vectors are read from this file."""
    embedding = new_embedding(cfg.parts[stack], cfg, dictionary, embed_dim)
    flag = f"--{stack}-embed-path"
    read = path and partial(read_embeddings, path, dictionary, embed_dim, cfg.embed_min_coverage, flag)
    fill_embedding(embedding, stack, cfg, read)
    return embedding


@torch.no_grad()
def new_embedding(
    parts: MaskedParts, options, dictionary, embed_dim: int
) -> MaskedEmbedding | RoundedEmbedding | nn.Embedding:
    """Create a token embedding. It is random with a mask, or trained and rounded, or an ordinary ``nn.Embedding`` (frozen or trained)."""
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
    """Set the vectors of an embedding from the seed or a file, in place.

    A frozen embedding is drawn from the seed with fairseq's distribution, N(0, 1 / embed_dim). Its padding row is 0.

    Args:
        embedding: from ``new_embedding``.
        stack: name of the stack. The drawn values depend on it.
        options: the model's options.
        read: function that returns the rows to replace and their vectors. In a masked embedding, the vectors are scaled like the
            random weights. The function is not called if a checkpoint is loaded afterwards.
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
        # Vectors from a file have no recipe, even if they are then loaded from a checkpoint.
        embedding.recipes = {}
        if not weight.is_meta and not values_from_checkpoint.get():
            indices, vectors = read()
            weight[indices] = vectors * (1.0 if masked is None else masked.choices.gain)
    weight[embedding.padding_idx] = 0


def _draw_as_fairseq(module, name, seed, padding=None, scale=1.0):
    """Draw the weight of an embedding or output projection from the seed, with fairseq's distribution N(0, 1 / width)."""
    recipe = Recipe("embedding_normal", name, tuple(module.weight.shape), scale=scale, zero_row=padding)
    draw(module, {"weight": recipe}, seed)
