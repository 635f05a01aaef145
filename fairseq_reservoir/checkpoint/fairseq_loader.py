"""Make fairseq's commands and functions read exports like checkpoints, and refuse corrupted checkpoints."""

import json
from argparse import Namespace
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from typing import Any

import torch
from fairseq.dataclass.utils import overwrite_args_by_name
from fairseq.models import ARCH_MODEL_REGISTRY
from omegaconf import OmegaConf, open_dict

from ..errors import InputError
from ..options.fairseq_flags import architecture_of
from . import claims, damage, dictionaries, export_file, model_path_checks, reader
from .origin import dictionaries_of
from .pretrained_embeddings import building_for_a_checkpoint
from .unregistered import refuse_unknown_kinds

MOST_EXPANDED = 2**16  # maximum number of entries of an expanded tensor, such as a buffer of positions
# While models are loaded: maps the path of each file to the dictionaries of its training.
_trained_with: ContextVar[dict[str, dict[str, Any]] | None] = ContextVar("_trained_with", default=None)


def read_export(
    load_checkpoint_to_cpu: Callable[..., Any],
    path: str,
    arg_overrides: dict[str, Any] | None = None,
    load_on_all_ranks: bool = False,
) -> dict[str, Any]:
    """Hook of ``load_checkpoint_to_cpu``: read exports like checkpoints. An error message is one line with the file and the reason."""
    with damage.reading(path):
        if export_file.is_export(path):
            state: dict[str, Any] = _state(path, arg_overrides)
        else:
            state = load_checkpoint_to_cpu(path, arg_overrides, load_on_all_ranks)
            _refuse_expanded(path, state.get("model"))
            for place in ("args", "cfg"):
                _refuse_interpolations(path, place, state.get(place))
        refuse_unknown_kinds(path, state)
        _request_regeneration(path, state, arg_overrides)
        if arg_overrides and model_path_checks.reads_a_model():
            model_path_checks.check_overrides(path, state, arg_overrides)
        if (read := _trained_with.get()) is not None:
            read[path] = dictionaries_of(state)
        return state


def load_with_dictionaries(
    load_model_ensemble_and_task: Callable[..., Any], filenames: list[str], *args: Any, **kwargs: Any
) -> tuple[Any, Any, Any]:
    """Hook of ``load_model_ensemble_and_task``: compare the training dictionaries with the dictionaries of the task."""
    read: dict[str, dict[str, Any]] = {}
    token = _trained_with.set(read)
    try:
        with building_for_a_checkpoint():
            models, config, task = load_model_ensemble_and_task(filenames, *args, **kwargs)
    finally:
        _trained_with.reset(token)
    # A model may read further files while it is built. They are in ``read``, but are not compared.
    for path in filenames:
        if path in read:
            dictionaries.check(path, read[path], task, same_size=True)
    return models, config, task


def _state(path: str, arg_overrides: dict[str, Any] | None) -> dict[str, Any]:
    """Read an export and return the state of a fairseq checkpoint, without optimizer state and position in the data."""
    body, tensors = export_file.read(path, partial(_check_claims, path))
    if not export_file.is_compact(body):
        reader.check_sizes(path, body, tensors)
        _check_claims(path, body, {name: list(tensor.shape) for name, tensor in tensors.items()})
    config = _config(body)
    if arg_overrides:
        overwrite_args_by_name(config, arg_overrides)
    return {
        "args": None,
        "cfg": config,
        "model": reader.state_dict(path, body, tensors),
        "criterion": None,
        "optimizer_history": [{"num_updates": body["num_updates"]}],
        "task_state": {},
        "extra_state": None,
        "dictionaries": body["dictionaries"],
    }


def _request_regeneration(path: str, state: dict[str, Any], arg_overrides: dict[str, Any] | None) -> None:
    """Set the option ``regenerate_weights`` of a model, even if the model was trained before the option existed.

    Raises:
        InputError: the architecture does not have this option.
    """
    if not (arg_overrides or {}).get("regenerate_weights"):
        return
    options: Any = getattr(state.get("cfg"), "model", None)
    name = architecture_of(options)
    if not hasattr(ARCH_MODEL_REGISTRY.get(name), "regenerate_weights"):
        raise InputError(
            "--regenerate-weights (regenerate_weights): works only with --arch reservoir_..., supermask_... and frozen_..., but "
            f"the model in {path} is a {name}; remove the option"
        )
    if OmegaConf.is_config(options):
        with open_dict(options):
            options.regenerate_weights = True


def _config(body: dict[str, Any]) -> Any:
    config = json.loads(json.dumps(body["config"]), object_hook=_namespace)
    return OmegaConf.create(config, flags={"allow_objects": True})


def _check_claims(path: str, body: dict[str, Any], shapes: dict[str, list[int]]) -> None:
    _refuse_interpolations(path, "config", body["config"])
    claims.check(path, body, shapes, _config(body).model)


def _refuse_expanded(path: str, tensors: Any) -> None:
    """Refuse a large tensor with more entries than the file stores, such as the result of ``expand``. A copy would need much memory."""
    for name, tensor in tensors.items() if isinstance(tensors, dict) else ():
        if isinstance(tensor, torch.Tensor) and tensor.numel() > MOST_EXPANDED and tensor.layout == torch.strided:
            stored = tensor.untyped_storage().nbytes()
            if tensor.nbytes > stored:
                raise InputError(f"{path}: {name} has {tensor.nbytes:,} bytes, but the file stores {stored:,}")


def _refuse_interpolations(path: str, place: str, entry: Any) -> None:
    """Refuse OmegaConf interpolations in a configuration. fairseq itself stores only plain values.

    An interpolation such as ``${oc.env:NAME}`` would read an environment variable of this machine.
    """
    if OmegaConf.is_config(entry):
        entry = OmegaConf.to_container(entry, resolve=False)
    if isinstance(entry, Namespace):
        entry = vars(entry)
    if isinstance(entry, str) and "${" in entry:
        raise InputError(
            f"{path}: {place} in its configuration is {entry[:80]}; ${{...}} is not allowed, because it can read"
            " environment variables of this machine"
        )
    if isinstance(entry, dict):
        for name, value in entry.items():
            _refuse_interpolations(path, name, value)
    elif isinstance(entry, (list, tuple)):
        for value in entry:
            _refuse_interpolations(path, place, value)


def _namespace(entry: dict[str, Any]) -> Namespace | dict[str, Any]:
    return Namespace(**entry["__namespace__"]) if "__namespace__" in entry else entry
