"""From a freshly built supermask model to its slot table, frozen before any optimizer exists."""

import torch
from torch import nn

from . import philox
from .modules.masked_embedding import MaskedEmbedding, TiedProjection
from .pretrained_embeddings import read_embeddings
from .reservoir_build import tied_names
from .slot_table import SlotTable, compile_table
from .supermask_stacks import masked_embedding


def compile_mask_table(model, plans, options) -> SlotTable:
    """The slot table of a supermask model; sets every ``requires_grad`` from it.

    A layer's trained tensors are the scores of its masks; the random weights stand in rows of their own.
    """
    frozen = [options.freeze, "ln" if options.mask_layernorm == "plain" else None]
    frozen.append("emb,out" if options.mask_embeddings == "frozen" else None)
    parameters = dict(model.named_parameters())
    table = compile_table(
        [(name, p.shape) for name, p in parameters.items()],
        plans,
        seed=options.mask_seed,
        freeze=",".join(filter(None, frozen)) or None,
        aliases=_aliases(model, parameters),
        shared=_shared(model, plans),
    )
    for entry in table.entries:
        if entry.name in parameters:
            parameters[entry.name].requires_grad_(entry.trained)
    return table


def _aliases(model, parameters):
    """Further names of tied parameters, with those of masked embeddings that serve as output projection."""
    owners = {id(p): name for name, p in parameters.items()}
    aliases = tied_names(model, parameters)
    for name, module in model.named_modules():
        if isinstance(module, TiedProjection) and isinstance(module.embedding, MaskedEmbedding):
            scores = module.embedding.scores
            if scores is not None:
                aliases[f"{name}.weight"] = (owners[id(scores)], tuple(module.embedding.weight_shape))
    return aliases


def _shared(model, plans):
    """(name, shape, number of layers) of every random weight."""
    for name, buffer in model.named_buffers():
        stack, place = name.split(".")[:2] if "." in name else ("", "")
        if place == "random_layer":
            yield name, tuple(buffer.shape), len(plans[stack])
        elif name.endswith(".frozen_weight"):
            yield name, tuple(buffer.shape), 1


@torch.no_grad()
def build_embedding(stack: str, cfg, dictionary, embed_dim: int, path: str | None) -> nn.Module:
    """The token embedding of a stack: a masked random one, or an ordinary one that is frozen or trained.

    A frozen one is drawn as fairseq draws it, N(0, 1 / embed_dim) with a padding row of 0, but from the seed. Vectors read
    from ``path`` replace the rows of the words they are of; under a mask they are scaled like the random weights.
    """
    if cfg.mask_embeddings == "masked":
        embedding = masked_embedding(cfg.parts[stack], dictionary, embed_dim)
        weight, gain = embedding.frozen_weight, embedding.choices.gain
    else:
        embedding = nn.Embedding(len(dictionary), embed_dim, padding_idx=dictionary.pad())
        weight, gain = embedding.weight, 1.0
        if cfg.mask_embeddings == "frozen":
            weight.copy_(gaussian(cfg.mask_seed, f"{stack}.embed_tokens.weight", weight.shape))
        else:
            nn.init.normal_(weight, std=embed_dim**-0.5)
        weight[dictionary.pad()] = 0
    if path and not weight.is_meta:
        flag = f"--{stack}-embed-path"
        indices, vectors = read_embeddings(path, dictionary, embed_dim, cfg.embed_min_coverage, flag)
        weight[indices] = vectors * gain
        weight[dictionary.pad()] = 0
    return embedding


@torch.no_grad()
def draw_frozen_projection(projection: nn.Linear, seed: int) -> None:
    """An output projection of its own under ``--mask-embeddings frozen``: fairseq's values, drawn from the seed."""
    projection.weight.copy_(gaussian(seed, "decoder.output_projection.weight", projection.weight.shape))


def gaussian(seed, name, shape):
    """N(0, 1 / columns)"""
    return philox.normal(seed, name, tuple(shape)) / shape[1] ** 0.5
