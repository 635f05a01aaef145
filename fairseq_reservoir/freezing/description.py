"""Stores plan, seed and flags in checkpoints; refuses to resume with different ones."""

import hashlib
import json
import os
import re
from argparse import Namespace
from collections.abc import Callable
from contextvars import ContextVar
from typing import NamedTuple

import torch
from fairseq import checkpoint_utils
from fairseq.file_io import PathManager

from ..errors import InputError
from ..layers.adapters.frozen_adapters import merge_adapters
from ..layers.backskip.in_model import fit_state
from ..plan.freeze_spec import ADAPTER, atom, layer_of


class Resumed(NamedTuple):
    """What a training goes on from."""

    file: str
    save_dir: str

    @property
    def save_dir_has_a_checkpoint(self) -> bool:
        """Whether a training without ``--restore-file`` would go on from a checkpoint in the same ``--save-dir``."""
        return PathManager.exists(os.path.join(self.save_dir, "checkpoint_last.pt"))


# What fairseq restores together with its optimizer state, while it does.
resuming: ContextVar[Resumed | None] = ContextVar("resuming", default=None)
# fairseq's moving average leaves alone what has "version" in its name.
BUFFER = "reservoir_version"
_HASH = "sha256"
# What a new training may add to the model of a checkpoint, and may not change or take away.
_ADDITIONS = ("frozen_adapter", "frozen_adapter_rank", "frozen_adapter_scale")
# Described, as in earlier versions, but not compared: no tensor depends on it.
NOT_COMPARED = ("embed_min_coverage",)
# What leaves layers out of a model; the rest of a description is that of the whole model.
PRUNING_FLAGS = {f"{stack}_layers_to_keep": f"--{stack}-layers-to-keep" for stack in ("encoder", "decoder")}


class DescribedInCheckpoint:
    """Keeps a description of the model in the state dict and compares it when one is loaded.

    It travels as the bytes of a JSON text in an int64 buffer, which half precision, averaging of like checkpoints and the
    moving average leave as it is. The average of two different texts can be a third one; a hash in the text tells. A
    checkpoint without it (plain fairseq's) is accepted unless it has other values for what the seed draws: a capital letter and
    --frozen-init say "random", and --freeze is what keeps trained values.

    Of a model with ``--encoder-layers-to-keep`` it describes the whole model, and says which layers are kept. Such a model takes
    the layers that it keeps from a checkpoint of the whole one, and a checkpoint of its own as it is.

    ``description_flags`` are the fields that must agree, each with its flag; ``resume_flags`` those that must agree only when
    training goes on with the optimizer's state; of these, those of adapters must also otherwise, if the checkpoint has any.
    """

    description_flags: dict[str, str] = {}
    resume_flags: dict[str, str] = {}

    # Why a model that keeps some layers cannot be made of a trained one with all of them, if it cannot.
    whole_only: str | None = None

    register_buffer: Callable[..., None]  # of the model

    # By its flag, the layers that a model keeps of a stack where it leaves some out, as in "0,2".
    keeps: dict[str, str] = {}

    def remember_description(self, description: dict, kept: dict[str, str]) -> None:
        """Called once the model is built.

        Args:
            description: what describes the model with all its layers; JSON types.
            kept: by stack, the layers that are kept of it, as in "0,2"; empty if all are.
        """
        self.keeps = {PRUNING_FLAGS[f"{stack}_layers_to_keep"]: layers for stack, layers in kept.items() if layers}
        self.register_buffer(
            BUFFER, _encode(description | {f"{stack}_layers_to_keep": layers for stack, layers in kept.items()})
        )

    def make_generation_fast_(self, **kwargs):
        """Prepare the model for inference: merge the adapters into their matrices, then as fairseq."""
        merge_adapters(self)
        super().make_generation_fast_(**kwargs)

    def load_state_dict(self, state_dict, strict=True, model_cfg=None, args=None):
        """As fairseq's, but layers are left out as this model says, and not once more of a checkpoint that has no others.

        fairseq goes by ``model_cfg``, and deletes the flags there, so that a training stored itself without them; and it leaves layers
        out last, when this model's layers and those of the state dict have been held against each other by their numbers.
        """
        stored = read_description(state_dict[BUFFER]) if BUFFER in state_dict else {}
        kept = {} if _kept(stored) else _kept(read_description(self.reservoir_version))
        if kept and hasattr(self, "register_classification_head"):
            # As old checkpoints of RoBERTa call its stack; fairseq puts them right later.
            state_dict = {re.sub("^decoder\\.", "encoder.", name): tensor for name, tensor in state_dict.items()}
        state_dict = checkpoint_utils.prune_state_dict(state_dict, Namespace(arch=type(self).__name__, **kept))
        if strict and BUFFER not in state_dict:
            self._refuse_without_random_tensors(state_dict)
        return super().load_state_dict(state_dict, strict)

    def upgrade_state_dict_named(self, state_dict, name):
        """fairseq calls this before it loads: compares descriptions, and completes that of the state dict.

        Raises:
            InputError: the checkpoint's model is another one.
        """
        super().upgrade_state_dict_named(state_dict, name)
        prefix = f"{name}." if name else ""
        key = prefix + BUFFER
        fit_state(self, state_dict, prefix, resuming=bool(resuming.get()))
        if key not in state_dict:
            self._refuse_other_values(state_dict, prefix, {})
            state_dict[key] = self.reservoir_version
            return state_dict
        stored, own = read_description(state_dict[key]), read_description(self.reservoir_version)
        # A whole model's layers are yet to be left out.
        leaves_out = {} if _kept(stored) else _kept(own)
        self._refuse_differences(stored, own, leaves_out)
        changed = {field: own.get(field) for field in self.resume_flags if own.get(field) != stored.get(field)}
        if changed and not resuming.get():
            self._refuse_other_values(state_dict, prefix, stored)
        # Checkpoints from here on say what this training was given.
        if changed or leaves_out:
            state_dict[key] = _encode(stored | changed | leaves_out)
        self.register_buffer(BUFFER, state_dict[key].to(self.reservoir_version.device))
        return state_dict

    def _refuse_differences(self, stored, own, leaves_out):
        plans = [stack for stack in ("encoder", "decoder") if stack in self.description_flags]
        if plans and not any(stack in stored for stack in plans):
            raise InputError(
                "the checkpoint is of a model without a layer plan, as those of --arch frozen_... are: "
                f"{type(self).__name__} starts from its own checkpoints and from fairseq's of that shape"
            )
        for field, flag in self._differences(stored | leaves_out, own).items():
            # Where tensors are to be drawn, a new optimizer is no help: the checkpoint's values, trained or of another seed, would stay.
            is_drawn = field in ("frozen_init", "frozen_seed") and own.get(field) is not None
            can_reset = field in self.resume_flags and field not in self._lasting(stored) and not is_drawn
            refuse_change(flag, own.get(field), stored.get(field), can_reset)
        if leaves_out and self.whole_only:
            given = " ".join(f"{PRUNING_FLAGS[field]} {layers}" for field, layers in leaves_out.items())
            raise InputError(f"{given}: {self.whole_only}")

    def _refuse_without_random_tensors(self, state_dict):
        own = self.state_dict()
        for name in getattr(self, "recipes", {}):
            # Adapters are added to any model, and so are the random tensors that they share.
            if name in own and name not in state_dict and atom(name) != ADAPTER:
                raise InputError(
                    f"the checkpoint has no {name}: it is of another architecture; give one of {type(self).__name__}'s"
                )

    def _refuse_other_values(self, state_dict, prefix, stored):
        """A tensor that is drawn from the seed may not silently hold what the checkpoint has, trained or of another seed.

        ``stored`` is the checkpoint's description, empty if it has none.
        """
        entries, own = {entry.name: entry for entry in self.slot_table.entries}, self.state_dict()
        for name in getattr(self, "recipes", {}):
            given = state_dict.get(prefix + name)
            if name not in entries or given is None or own[name].is_meta or _may_be_drawn_here(given, own[name]):
                continue
            # What a letter or a mask is made of is known to agree, and may be a file's, or a LayerNorm's that was trained.
            if stored and not (entries[name].frozen_init or atom(name) == ADAPTER):
                continue
            here, seed = read_description(self.reservoir_version), stored.get("frozen_seed")
            of_none = "" if stored else ", which says of no tensor that it is random,"
            others = f"the checkpoint{of_none} has values of its own for {name}"
            init, where = entries[name].frozen_init, layer_of(entries[name].random_name or name)
            if seed is not None and seed != here.get("frozen_seed") and (init or atom(name) == ADAPTER):
                raise InputError(
                    f"--reservoir-seed {here.get('frozen_seed')} (--seed, where it is not given): {others}; give {seed}, as it was trained"
                )
            if init:
                raise InputError(f"--frozen-init {init}: {others}; leave --frozen-init out to freeze those")
            if where is None or where[0] not in self.description_flags:
                raise InputError(f"{name} is drawn from the seed: {others}; give a checkpoint of this architecture")
            stack, plan = where[0], here[where[0]]
            raise InputError(
                f"{self.description_flags[stack]} {plan}: {plan[where[1]]} is a random layer, but {others}; to freeze those, give its "
                f"trained letter and --freeze {stack}.layers.{where[1]}"
            )

    def _lasting(self, stored):
        return {field: self.resume_flags[field] for field in _ADDITIONS if stored.get(field) is not None}

    def _differences(self, stored, own):
        compared = {
            **self.description_flags,
            **PRUNING_FLAGS,
            **(self.resume_flags if resuming.get() else self._lasting(stored)),
        }
        return {field: flag for field, flag in compared.items() if stored.get(field) != own.get(field)}


def _may_be_drawn_here(given, own):
    """Whether a tensor may be the one drawn here: equal up to another machine's rounding or half precision.

    One of another shape passes; loading refuses it.
    """
    return given.shape != own.shape or torch.allclose(
        given.to(own.device, torch.float32), own.float(), rtol=1e-2, atol=1e-4
    )


def refuse_change(flag: str, given, trained, can_reset: bool) -> None:
    """Refuses to go on from a checkpoint with another value of a flag.

    Args:
        flag: with its dashes.
        given, trained: the value now and that of the checkpoint; None if it was not given.
        can_reset: whether without the optimizer's state another value makes sense.

    Raises:
        InputError: always.
    """
    shown = flag if given is True else f"{flag} {'not given' if given is None else given}"
    if flag == "--reservoir-seed":
        shown += " (--seed, where it is not given)"
    value = "it" if trained is True else trained
    was, same = ("without it", "leave it out") if trained is None else (f"with {value}", f"give {value}")
    resumed = resuming.get()
    anew = (
        "in another --save-dir"
        if resumed is not None and resumed.save_dir_has_a_checkpoint
        else "without that checkpoint"
    )
    raise InputError(
        f"{shown}: the checkpoint was trained {was}; "
        f"{same}{', or --reset-optimizer' if can_reset else ''}, or train anew {anew}"
    )


def read_description(buffer: torch.Tensor) -> dict:
    """The description in a checkpoint's buffer ``reservoir_version``.

    Raises:
        InputError: it is not as it was written.
    """
    try:
        description = json.loads(bytes(buffer.tolist()))
        if description.pop(_HASH, None) in (None, _hash_of(description)):
            return description
    except (ValueError, TypeError, AttributeError):
        pass
    raise InputError(
        f"{BUFFER}: the checkpoint's description of its model is damaged, as when checkpoints of different seeds or plans are"
        " averaged; 'fairseq-reservoir average' compares them first"
    )


def _kept(description) -> dict[str, str]:
    """The fields of a description that say which layers are kept."""
    return {field: description[field] for field in PRUNING_FLAGS if description.get(field)}


def _encode(description) -> torch.Tensor:
    text = json.dumps({**description, _HASH: _hash_of(description)}, sort_keys=True)
    return torch.tensor(list(text.encode()), dtype=torch.int64)


def _hash_of(description):
    return hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()[:16]
