"""Compute the outputs of every layer of a trained model on sentences of binarised data (``fairseq-reservoir probe``)."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import numpy as np
import torch
from fairseq.data import data_utils
from fairseq.models import FairseqLanguageModel
from fairseq.models.transformer import TransformerDecoderBase, TransformerEncoderBase
from numpy.typing import NDArray

from ..errors import InputError
from ..freezing.by_name import slot_table
from ..options.plans import PlanFlags
from ..options.reading import read
from ..plan.layer_plan import expand, layers_kept
from ..plan.slot_table import Row
from . import dictionaries
from .meta_checkpoint import Checkpoint, open_checkpoint
from .origin import dictionaries_of

MASKED, LEFT_OUT = "masked", "left out"
# Longer sentences are omitted: attention needs memory for the square of the length.
_LONGEST, _AT_ONCE = 512, 64


@dataclass(frozen=True)
class Depth:
    """A depth of a stack. Depth 0 is the embeddings, depth n is the n-th layer of the plan.

    ``state`` is the state in the slot table: trained, frozen or partly frozen. A layer with masks on random weights has the state
    ``MASKED``. A layer that ``--encoder-layers-to-keep`` removes has the state ``LEFT_OUT``. ``shown_state`` is the state together with the
    names of the frozen components.
    """

    number: int
    kind: str
    state: str
    shown_state: str


@dataclass(frozen=True)
class Sentence:
    """The tokens of a source sentence, without special symbols at its ends.

    ``copied`` is True for each token that also occurs in the target sentence. Tokens are compared by their text. ``copied`` is None for
    data without a target.
    """

    tokens: NDArray[np.int64]
    copied: NDArray[np.bool_] | None


class ProbedModel:
    """The encoder of a checkpoint, or the decoder of a language model. Also holds the dictionary of the tokens.

    Args:
        path: path of a checkpoint or an export.
        data: folder written by fairseq-preprocess.

    Attributes:
        depths: the embeddings and all layers of the plan, from the bottom up. Layers that the model leaves out are included.
        dictionary: dictionary of the tokens.

    Raises:
        InputError: the file is not a checkpoint, its model is not a Transformer, or the dictionaries differ from those of the training.
    """

    def __init__(self, path: str, data: str) -> None:
        opened = open_checkpoint(path)
        model: Any = opened.built()
        self.stack, self._layers = _stack(path, opened, model)
        self.depths = _depths(opened, model, self.stack)
        if not os.path.isdir(data):
            raise InputError(f"DATA {data}: no such folder")
        self._task = dictionaries.task_of_config(opened.config, data, flag="DATA")
        dictionaries.check(f"DATA {data}", dictionaries_of(opened.state), self._task)
        self.dictionary = self._task.source_dictionary
        self._data = data
        is_roberta = self.stack == "encoder" and not hasattr(model, "decoder")
        self._before = [self.dictionary.bos()] if is_roberta else []
        self._after = [self.dictionary.eos()]
        if self.stack == "decoder":  # a language model reads the end of the previous sentence first
            self._before, self._after = self._after, []

    @property
    def longest(self) -> int:
        """Maximum number of tokens in a sentence."""
        positions: int = self._layers.max_positions()
        return min(_LONGEST, positions) - len(self._before) - len(self._after)

    def sentences(self, split: str, most: int, seed: int) -> list[Sentence]:
        """Draw at most ``most`` sentences of a split. Each sentence has at least two and at most ``longest`` tokens.

        Raises:
            InputError: DATA has no split of this name for the model's language.
        """
        source, target = self._read(split)
        texts = self.dictionary.symbols
        found = []
        sizes = np.asarray(source.sizes)
        usable = np.flatnonzero((sizes > 1) & (sizes <= self.longest + 1))
        for number in np.sort(np.random.default_rng([seed, len(usable)]).permutation(usable)[:most]):
            tokens = source[number].numpy().astype(np.int64)
            tokens = tokens[:-1] if tokens[-1] == self.dictionary.eos() else tokens
            copied = None
            if target is not None:
                there = {self._task.target_dictionary.symbols[i] for i in target[number].tolist()}
                copied = np.array([texts[i] in there for i in tokens])
            if 2 <= len(tokens) <= self.longest:
                found.append(Sentence(tokens, copied))
        return found

    def _read(self, split: str) -> tuple[Any, Any]:
        """Source and target of a split. The target is None for data of one language."""
        languages = (getattr(self._task.cfg, f"{side}_lang", None) for side in ("source", "target"))
        pair = [str(language) for language in languages if language]
        names = [f"{split}.{'-'.join(order)}" for order in (pair, pair[::-1])] if pair else []
        for name in names:
            sides = [self._open(f"{name}.{language}", self._task.source_dictionary) for language in pair]
            if all(side is not None for side in sides):
                return sides[0], sides[1]
        for name in (split, os.path.join("input0", split)) if not names else ():
            if (source := self._open(name, self.dictionary)) is not None:
                return source, None
        wanted = f"{names[0]}.{pair[0]}" if names else split
        raise InputError(
            f"--split {split}: DATA {self._data} has no {wanted}; name a split such as train, valid or test"
        )

    def _open(self, name: str, dictionary: Any) -> Any:
        return data_utils.load_indexed_dataset(os.path.join(self._data, name), dictionary)

    def outputs(self, sentences: list[Sentence]) -> Iterator[tuple[int, NDArray[np.float32]]]:
        """Yield (index of the sentence, outputs of its tokens) in any order.

        Outputs have the shape (built layers + 1, number of tokens, width). The first outputs are the embeddings. All sentences of a batch
        have the same length, so no batch has padding.
        """
        order = sorted(range(len(sentences)), key=lambda i: len(sentences[i].tokens))
        for length, group in groupby(order, key=lambda i: len(sentences[i].tokens)):
            numbers = list(group)
            for start in range(0, len(numbers), _AT_ONCE):
                batch = numbers[start : start + _AT_ONCE]
                rows = [[*self._before, *sentences[i].tokens.tolist(), *self._after] for i in batch]
                first = len(self._before)
                states = self._states(torch.tensor(rows))[:, first : first + length]
                for place, number in enumerate(batch):
                    yield number, states[:, :, place].numpy()

    @torch.no_grad()
    def _states(self, tokens: torch.Tensor) -> torch.Tensor:
        """The embeddings and the outputs of all layers (layers + 1, time, batch, width)."""
        if self.stack == "encoder":
            states = self._layers(tokens, return_all_hiddens=True)["encoder_states"]
        else:
            states = self._layers.extract_features(tokens, None)[1]["inner_states"]
        return torch.stack(list(states)).float()


def _stack(path: str, opened: Checkpoint, model: Any) -> tuple[str, Any]:
    encoder = getattr(model, "encoder", None)
    encoder = getattr(encoder, "sentence_encoder", encoder)
    if isinstance(encoder, TransformerEncoderBase):
        return "encoder", encoder
    decoder = getattr(model, "decoder", None)
    if isinstance(model, FairseqLanguageModel) and isinstance(decoder, TransformerDecoderBase):
        return "decoder", decoder
    raise InputError(
        f"CHECKPOINT {path}: {opened.config.model._name} has no Transformer encoder and is not a Transformer language model"
    )


def _depths(opened: Checkpoint, model: Any, stack: str) -> tuple[Depth, ...]:
    rows: dict[str, list[Row]] = {}
    for row in slot_table(model).rows:
        rows.setdefault(row.place, []).append(row)
    found = [_depth(0, "embeddings", rows.get(f"{stack}.embed_tokens", []))]
    layers = [of_place for place, of_place in rows.items() if place.startswith(f"{stack}.layers.")]
    numbers, depth = _numbers(opened, stack, len(layers))
    for number in range(depth):
        if number in numbers:
            of_layer = layers[numbers.index(number)]
            found.append(_depth(number + 1, of_layer[0].kind, of_layer))
        else:
            found.append(Depth(number + 1, "", LEFT_OUT, LEFT_OUT))
    return tuple(found)


def _depth(number: int, kind: str, rows: list[Row]) -> Depth:
    """Describe the embeddings or a layer from ``rows`` of the slot table. A masked embedding has two rows."""
    if any(entry.name.endswith(".scores") for row in rows for entry in row.entries):
        return Depth(number, kind, MASKED, MASKED)
    if rows and rows[0].state in ("frozen", "partly frozen"):
        return Depth(number, kind, rows[0].state, rows[0].shown_state)
    return Depth(number, kind, "trained", "trained")


def _numbers(opened: Checkpoint, stack: str, built: int) -> tuple[list[int], int]:
    """Return the positions of the built layers in the unpruned stack, counted from 0, and the depth of the unpruned stack."""
    flags = vars(read(PlanFlags, opened.config.model))
    plan, to_keep = flags[f"reservoir_{stack}"], flags[f"{stack}_layers_to_keep"]
    depth = len(expand(plan, f"--reservoir-{stack}", stack)) if plan else flags[f"{stack}_layers"]
    if not to_keep or depth is None:
        return list(range(built)), built
    return layers_kept(to_keep, depth, f"--{stack}-layers-to-keep"), depth
