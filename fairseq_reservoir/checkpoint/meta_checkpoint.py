"""Open a fairseq checkpoint, and build its model on the meta device to get the names, shapes, roles and recipes of its tensors."""

import re
from dataclasses import dataclass
from typing import Any, cast

import torch
from fairseq import checkpoint_utils

from ..errors import InputError, in_one_line
from ..files import check_file
from ..random_tensors.recipe import Recipe
from .dry_build import NEEDS_ITS_TASK, build_config
from .ledger import Ledger, ledger
from .packed_masks import shapes_of_scales

Tensors = dict[str, torch.Tensor]

# Names of tensors with one row per word: embeddings (ordinary, masked, rounded or of an adaptive input) and output projections.
_TABLE = re.compile(
    r"(?:^|\.)(embed_tokens|output_projection)\.(?:embeddings\.(\d+)\.0\.)?(?:weight|scores|frozen_weight|latent)$"
)


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint. ``state`` is the content of the file ``path``. ``model`` is the checkpoint's model on the meta device."""

    path: str
    state: dict[str, Any]
    model: torch.nn.Module

    @property
    def config(self) -> Any:
        return self.state["cfg"]

    @property
    def tensors(self) -> Tensors:
        return cast(Tensors, self.state["model"])

    @property
    def ledger(self) -> Ledger:
        return ledger(self.model)

    def built(self) -> torch.nn.Module:
        """Build the model with its tensors, in evaluation mode."""
        model = build_model(self.config.model, self.tensors, device="cpu")
        model.load_state_dict(self.tensors)
        model.eval()
        return model

    @property
    def num_updates(self) -> int:
        """Number of updates of the training."""
        return cast(int, self.state["optimizer_history"][-1]["num_updates"])


def open_checkpoint(path: str) -> Checkpoint:
    """Read a checkpoint or an export. The training data are not needed.

    Raises:
        InputError: the file is missing or not a checkpoint of fairseq, its tensors do not fit its model, or the model cannot be built
            without the training task.
    """
    state = read_state(path)
    try:
        model = build_model(state["cfg"].model, state["model"])
    except NEEDS_ITS_TASK as error:
        reason = in_one_line(f"{type(error).__name__}: {error}")
        raise InputError(
            f"CHECKPOINT {path}: its model cannot be built without the training task ({reason})"
        ) from error
    if hasattr(model, "recipes"):
        _check_tensors(path, model, state["model"])
        _take_earlier_recipes(model, state["model"])
    return Checkpoint(str(path), state, model)


def read_state(path: str, what: str = "CHECKPOINT") -> dict[str, Any]:
    """Return the state that fairseq reads from a checkpoint or an export.

    Args:
        path: path of the file.
        what: flag or argument that named the file, for error messages.

    Raises:
        InputError: the file is missing or not a checkpoint of fairseq.
    """
    check_file(what, path)
    try:
        state: dict[str, Any] = checkpoint_utils.load_checkpoint_to_cpu(str(path))
        state["cfg"].model, state["model"]
    except InputError as error:
        raise InputError(f"{what} {error}" if str(error).startswith(f"{path}: not ") else str(error)) from error
    except Exception as error:
        raise InputError(f"{what} {path}: not a checkpoint of fairseq ({' '.join(str(error).split())[:80]})") from error
    return state


def build_model(config: Any, tensors: Tensors, device: str = "meta") -> torch.nn.Module:
    """Build the model of a configuration. The dictionary sizes are taken from the checkpoint's tensors.

    Classification heads of a RoBERTa are added if the checkpoint has tensors for them. The configuration does not list heads, because
    tasks add them.
    """
    model: Any = build_config(config, *dictionary_sizes(tensors), device=device)
    if hasattr(model, "add_heads_of"):
        with torch.device(device):
            model.add_heads_of(tensors)
    return cast(torch.nn.Module, model)


def dictionary_sizes(tensors: Tensors) -> tuple[int, int]:
    """Return the sizes of source and target dictionary, from the embeddings and the output projection.

    The sizes are equal in a model with one dictionary. An adaptive input has several embedding tables, each for a range of word indices.
    """
    rows: dict[tuple[str, str], dict[str | None, int]] = {}
    for name, tensor in tensors.items():
        stack, _, place = name.partition(".")
        table = _TABLE.search(place)
        if table and tensor.dim() == 2:
            bands = rows.setdefault((stack, table[1]), {})
            bands[table[2]] = len(tensor)
    found = {place: sum(bands.values()) for place, bands in rows.items()}
    embedded = found.get(("decoder", "embed_tokens"), found.get(("encoder", "embed_tokens"), 4))
    target = found.get(("decoder", "output_projection"), embedded)
    return found.get(("encoder", "embed_tokens"), embedded), target


def shapes_of(model: torch.nn.Module) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the tensors in a model's state dict, and of the scales that an export adds for rounded weights."""
    return {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()} | shapes_of_scales(ledger(model))


def _check_tensors(path: str, model: torch.nn.Module, tensors: Tensors) -> None:
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    items = ledger(model)
    for item in items.with_roles("training"):
        if item.name not in found:  # exports do not store such tensors
            del expected[item.name]
    expected |= {name: shape for name, shape in shapes_of_scales(items).items() if name in found}
    for name in sorted(expected.keys() | found.keys()):
        if expected.get(name) != found.get(name) and not name.endswith("reservoir_version"):
            raise InputError(
                f"CHECKPOINT {path}: {name} has shape {found.get(name)}, but its model needs {expected.get(name)}"
            )


def _take_earlier_recipes(model: Any, tensors: Tensors) -> None:
    """For tensors that an earlier plugin version drew with a different recipe (``model.earlier_recipes``), use that recipe."""
    for name, earlier in getattr(model, "earlier_recipes", {}).items():
        seed, given = model.slot_table.seed, tensors.get(name)
        if given is not None and not _is_drawn(given, model.recipes[name], seed) and _is_drawn(given, earlier, seed):
            model.recipes[name] = earlier


def _is_drawn(given: torch.Tensor, recipe: Recipe, seed: int) -> bool:
    """Return whether the tensor ``given`` was drawn with ``recipe``. Differences caused by rounding to half precision are allowed."""
    return torch.allclose(given.float(), recipe.draw(seed), rtol=1e-2, atol=1e-5)
