"""Initial values for the token and position embeddings of a supermask RoBERTa."""

from dataclasses import replace
from functools import partial
from typing import Any

import torch

from ...checkpoint.other_dictionary import refuse_other_words
from ...checkpoint.pretrained_embeddings import read_embeddings, values_from_checkpoint
from ...errors import InputError
from ...random_tensors.fill import draw
from ...random_tensors.recipe import Recipe
from .build import fill_embedding
from .stacks import BERT_STD, paper_code

FLAG = "--mask-embeddings-from"
TOKENS, POSITIONS = "sentence_encoder.embed_tokens.weight", "sentence_encoder.embed_positions.weight"


@torch.no_grad()
def fill_embeddings(encoder, options) -> None:
    """Set the token and position embeddings of a ``SupermaskRobertaEncoder`` from the seed or a file.

    The entries of a frozen position embedding are drawn as +1 / sqrt(width) or -1 / sqrt(width). These values have the magnitude of random
    token vectors, and the same bits on every machine. With ``--mask-init-weights paper_code``, positions and frozen token vectors are drawn
    from N(0, 0.02^2).

    Args:
        encoder: the encoder with fairseq's initial values.
        options: the model's options.

    Raises:
        InputError: both a checkpoint and a text file are given, or the file cannot be used.
    """
    stack, dictionary = encoder.sentence_encoder, encoder.dictionary
    path, text = options.mask_embeddings_from, options.encoder_embed_path
    if path and text:
        raise InputError(f"{FLAG} {path} and --encoder-embed-path {text}: give only one of them")
    positions = stack.embed_positions.weight
    read, given = None, {}
    if path and not positions.is_meta and not values_from_checkpoint.get():
        given = read_checkpoint(path, dictionary, len(positions), positions.shape[1])
    if path:

        def read():
            return slice(None), given[TOKENS]

    elif text:
        flag = "--encoder-embed-path"
        read = partial(read_embeddings, text, dictionary, positions.shape[1], options.embed_min_coverage, flag)
    of_bert = BERT_STD * positions.shape[1] ** 0.5 if options.mask_init_weights == "paper_code" else None
    fill_embedding(stack.embed_tokens, "encoder", options, read, of_bert or 1.0)
    if path:
        positions.copy_(given.get(POSITIONS, positions))
    elif options.mask_embeddings in ("masked", "frozen"):
        # signed_constant is +-sqrt(2 / width), embedding_normal N(0, 1 / width)
        init, scale = ("embedding_normal", of_bert) if of_bert else ("signed_constant", 0.5**0.5)
        name, shape = "encoder.embed_positions", tuple(positions.shape)
        recipe = Recipe(init, name, shape, scale=scale, zero_row=dictionary.pad())
        draw(stack.embed_positions, {"weight": recipe}, options.mask_seed)


def earlier_recipes(recipes: dict[str, Recipe]) -> dict[str, Recipe]:
    """Return the recipes that ``paper_code`` had before version 0.2.0. They initialised a RoBERTa like a translation model.

    Args:
        recipes: current recipes by tensor name.
    """
    earlier = {}
    for name, recipe in recipes.items():
        if recipe.name == "encoder.embed_positions":
            init, scale = "signed_constant", 0.5**0.5
        elif recipe.initialiser == "embedding_normal":
            init, scale = recipe.initialiser, 1.0
        else:
            init, scale = paper_code(recipe.name)
        earlier[name] = replace(recipe, initialiser=init, scale=scale)
    return earlier


def read_checkpoint(path: str, dictionary: Any, positions: int, width: int) -> dict[str, torch.Tensor]:
    """Read ``TOKENS`` (vocabulary, width) and the first rows of ``POSITIONS`` (positions, width) from a RoBERTa checkpoint.

    The checkpoint may come from fairseq or from this package.

    Raises:
        InputError: the file is not a checkpoint of a RoBERTa with learned positions, or its sizes or dictionary differ from the model's.
    """
    from ...checkpoint.meta_checkpoint import open_checkpoint, read_state
    from ...checkpoint.origin import dictionaries_of

    state = read_state(path, FLAG)
    found = _embeddings(state["model"])
    if TOKENS not in found and POSITIONS in found:
        model: Any = open_checkpoint(path).built()
        embedding = model.encoder.sentence_encoder.embed_tokens  # masked
        found[TOKENS] = embedding.weight.detach()
    if len(found) < 2:
        raise InputError(f"{FLAG} {path}: is not a checkpoint of a RoBERTa with learned positions")
    tokens = found[TOKENS]
    if tokens.shape[1] != width:
        raise InputError(f"{FLAG} {path}: has vectors of width {tokens.shape[1]}, but --encoder-embed-dim is {width}")
    if len(tokens) != len(dictionary):
        raise InputError(
            f"{FLAG} {path}: has {len(tokens)} token vectors, but the dictionary of DATA has {len(dictionary)} entries"
        )
    trained = dictionaries_of(state).get("source")
    refuse_other_words(f"{FLAG} {path}", trained, dictionary, "source", "that of DATA")
    if len(found[POSITIONS]) < positions:
        special = 2  # fairseq numbers positions from the padding index + 1
        raise InputError(
            f"{FLAG} {path}: has {len(found[POSITIONS]) - special} positions, but the model has {positions - special} (--max-positions)"
        )
    return {TOKENS: tokens.float(), POSITIONS: found[POSITIONS][:positions].float()}


def _embeddings(tensors):
    """Find ``TOKENS`` and ``POSITIONS`` in a checkpoint. Their names may have any prefix, such as "decoder" in old checkpoints."""
    return {
        ending: tensor
        for name, tensor in tensors.items()
        for ending in (TOKENS, POSITIONS)
        if name.endswith(f".{ending}")
    }
