"""Convert a checkpoint of this plugin into a checkpoint of fairseq's own ``transformer``, which needs no plugin."""

from argparse import Namespace
from collections import OrderedDict
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from fairseq.models import MODEL_REGISTRY
from omegaconf import OmegaConf

from ..errors import InputError
from ..fairseq_repairs import archive
from ..files import check_out, replacing
from ..options.fairseq_flags import DataFlags
from ..options.for_fairseq.transformer import FlatTransformerConfig
from ..options.reading import read
from .dictionaries import languages_in
from .dry_build import build_config
from .meta_checkpoint import Checkpoint, dictionary_sizes, open_checkpoint
from .plain_transformer import MODELS, why_not_plain

_NO_OPTIMIZER = {"criterion_name": "", "optimizer_name": "", "lr_scheduler_state": {}}


def materialize(checkpoint: str, out: str, force: bool = False) -> str:
    """Convert a checkpoint to a checkpoint of fairseq's ``transformer`` with the same outputs. Masks are multiplied into the weights.

    Outputs agree up to rounding, about 1e-5 in fp32. Layers with ``--frozen-dtype bf16`` compute in fp32 after the conversion. In a test,
    this changed logits by 4e-3. fairseq and CTranslate2's converter read the file with torch's safe loader, without this plugin.

    Args:
        checkpoint: a checkpoint or an export of a translation model of this plugin.
        out: file to write, ending in .pt.
        force: replace ``out`` if it exists.

    Returns:
        A line about the written file.

    Raises:
        InputError: a file is not usable, or fairseq's ``transformer`` or CTranslate2 cannot represent the model.
    """
    check_out(out, force, ".pt", checkpoint)
    source = open_checkpoint(checkpoint)
    _check_model(source)
    args = _args(source)
    plain = build_config(Namespace(**vars(args)), *dictionary_sizes(source.tensors))
    model = source.built()
    values: dict[int, torch.Tensor] = {}  # by the id of fairseq's tensor, so that tied tensors are stored once
    tensors = {}
    for name, parameter in plain.state_dict(keep_vars=True).items():
        if id(parameter) not in values:
            values[id(parameter)] = _value(model, name)
        tensors[name] = values[id(parameter)]
    state = {
        "args": args,
        "cfg": None,
        "model": tensors,
        "criterion": None,
        "optimizer_history": [{**_NO_OPTIMIZER, "num_updates": source.num_updates}],
        "task_state": {},
        "extra_state": {"train_iterator": {"epoch": 1}},
    }
    with replacing(out) as temporary:
        with temporary.open("wb") as file:  # torch does not report a full disk for files that it opens itself
            archive.save(state, file)
        written = torch.load(temporary, weights_only=True)["model"]
        if not all(torch.equal(written[name], tensor) for name, tensor in tensors.items()):
            raise OSError("reading the written file returned other tensors")
    size, depth = Path(out).stat().st_size, f"{args.encoder_layers} + {args.decoder_layers}"
    return f"{out}: {size:,} bytes, fairseq's transformer, {depth} layers"


def _check_model(source: Checkpoint) -> None:
    config = source.config.model
    if type(source.model) in [MODEL_REGISTRY[name] for name in MODELS]:
        reason = why_not_plain(config)
    else:
        reason = f"{config._name} is not a translation model of this plugin"
    if reason:
        raise InputError(f"CHECKPOINT {source.path}: {reason}")


def _args(source: Checkpoint) -> Any:
    """Return the training flags of ``transformer`` as attributes of an OrderedDict.

    fairseq and CTranslate2 read flags from attributes. Among the classes that torch's safe loader accepts, only OrderedDict can have
    attributes. The OrderedDict has one item, because CTranslate2 ignores an empty OrderedDict.
    """
    config = OmegaConf.to_container(source.config, resolve=True, enum_to_str=True)
    model, task = config["model"], config["task"]
    if isinstance(model, Namespace):  # fairseq's own models may have a Namespace
        model = vars(model)
    flat = {f.name for f in fields(FlatTransformerConfig)} & model.keys()
    args: Any = OrderedDict(arch="transformer")
    vars(args).update({name: value for name, value in task.items() if name != "_name"})
    vars(args).update({name: model[name] for name in sorted(flat) if name not in ("_name", "quant_noise")})
    for stack in ("encoder", "decoder"):
        layers = getattr(source.model, stack).layers
        # The file contains only the kept layers.
        vars(args).update({f"{stack}_layers": len(layers), f"{stack}_layers_to_keep": None})
    args.arch, args.task, args.criterion = "transformer", task["_name"], "cross_entropy"
    args.encoder_embed_path = args.decoder_embed_path = None
    languages = read(DataFlags, args)
    if languages.source_lang is None or languages.target_lang is None:
        args.source_lang, args.target_lang = languages_in(task.get("data"))
    return args


def _value(model: torch.nn.Module, name: str) -> torch.Tensor:
    """Return a copy of the tensor in our model that corresponds to fairseq's tensor ``name``."""
    place, _, attribute = name.rpartition(".")
    tensor: torch.Tensor = getattr(model.get_submodule(place), attribute)
    return tensor.detach().clone()
