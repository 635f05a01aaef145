"""Store plan, seed and flags in checkpoints, and refuse to resume with different ones."""

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
    """The checkpoint from which a training resumes."""

    file: str
    save_dir: str
    optimizer_overrides: dict | None = None

    @property
    def save_dir_has_a_checkpoint(self) -> bool:
        """Whether a training without ``--restore-file`` would resume from a checkpoint in the same ``--save-dir``."""
        return PathManager.exists(os.path.join(self.save_dir, "checkpoint_last.pt"))


# Set while fairseq restores a checkpoint with its optimizer state.
resuming: ContextVar[Resumed | None] = ContextVar("resuming", default=None)
# fairseq's moving average skips tensors with "version" in their name.
BUFFER = "reservoir_version"
_HASH = "sha256"
# Flags that a new training may add to the model of a checkpoint, but cannot change or remove.
_ADDITIONS = ("frozen_adapter", "frozen_adapter_rank", "frozen_adapter_scale")
# Flags that are stored, as in earlier versions, but not compared, because no tensor depends on them.
NOT_COMPARED = ("embed_min_coverage",)
# Flags that leave out layers. The other fields of a description are those of the whole model.
PRUNING_FLAGS = {f"{stack}_layers_to_keep": f"--{stack}-layers-to-keep" for stack in ("encoder", "decoder")}


class DescribedInCheckpoint:
    """Mix-in for a model: store a description of the model in its state dict, and compare the descriptions when one is loaded.

    The description is a JSON text in an integer buffer, one byte per entry. Half precision, the moving average and the average of equal
    descriptions do not change the buffer. The average of different texts can be a valid third text, so the text contains a hash. A
    checkpoint without a description, of plain fairseq, is accepted unless a tensor that is drawn from the seed has another value in it:
    capital letters and --frozen-init mean random values, --freeze means trained values.

    With ``--encoder-layers-to-keep`` the description is of the whole model and names the kept layers. Such a model loads its layers from
    a checkpoint of the whole model, or from a checkpoint of its own.

    ``description_flags`` are the fields that must agree, each with its flag. ``resume_flags`` must agree only when the optimizer's state
    is restored; the flags of adapters among them must always agree if the checkpoint has adapters.
    """

    description_flags: dict[str, str] = {}
    resume_flags: dict[str, str] = {}

    # The reason why this model cannot load some layers of a checkpoint of the whole model, if it cannot.
    whole_only: str | None = None

    register_buffer: Callable[..., None]

    # The kept layers of each pruned stack by flag, as in "0,2".
    keeps: dict[str, str] = {}

    def remember_description(self, description: dict, kept: dict[str, str]) -> None:
        """Store the description of a built model.

        Args:
            description: of the model with all its layers; JSON types.
            kept: the kept layers by stack, as in "0,2"; empty if all are kept.
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
        """Load a state dict as fairseq does. Without a description it must have the random tensors, unless it is a part of one."""
        if strict and BUFFER not in state_dict:
            self._leave_out_layers(state_dict)
            self._refuse_without_random_tensors(state_dict)
        return super().load_state_dict(state_dict, strict, model_cfg, args)

    def upgrade_state_dict_named(self, state_dict, name):
        """Leave out layers, compare descriptions, and complete that of the state dict. fairseq calls this before it loads a state dict.

        Layers are left out before fairseq compares the layers of the model and of the state dict by their numbers. The description has
        the numbers. fairseq itself leaves layers out later, by flags of the configuration that it then deletes.

        Raises:
            InputError: the checkpoint is of another model.
        """
        if not name:
            self._leave_out_layers(state_dict)
        super().upgrade_state_dict_named(state_dict, name)
        prefix = f"{name}." if name else ""
        key = prefix + BUFFER
        fit_state(self, state_dict, prefix, resuming=bool(resuming.get()))
        if key not in state_dict:
            self._refuse_other_values(state_dict, prefix, {})
            state_dict[key] = self.reservoir_version
            return state_dict
        stored, own = read_description(state_dict[key]), read_description(self.reservoir_version)
        # Empty if the checkpoint is of a pruned model.
        leaves_out = {} if _kept(stored) else _kept(own)
        self._refuse_differences(stored, own, leaves_out)
        changed = {field: own.get(field) for field in self.resume_flags if own.get(field) != stored.get(field)}
        if changed and not resuming.get():
            self._refuse_other_values(state_dict, prefix, stored)
        # Checkpoints of this training store its own flags.
        if changed or leaves_out:
            state_dict[key] = _encode(stored | changed | leaves_out)
        self.register_buffer(BUFFER, state_dict[key].to(self.reservoir_version.device))
        return state_dict

    def _leave_out_layers(self, state_dict):
        stored = read_description(state_dict[BUFFER]) if BUFFER in state_dict else {}
        kept = _kept(read_description(self.reservoir_version))
        if not kept or _kept(stored):
            return
        pruned = dict(state_dict)
        if hasattr(self, "register_classification_head"):
            # In RoBERTas from before 2020 the stack has this name. fairseq renames it later.
            pruned = {re.sub("^decoder\\.", "encoder.", key): tensor for key, tensor in pruned.items()}
        # fairseq's function reads the lists of layers from the options of a model.
        pruned = checkpoint_utils.prune_state_dict(pruned, Namespace(arch=type(self).__name__, **kept))
        state_dict.clear()
        state_dict.update(pruned)

    def _refuse_differences(self, stored, own, leaves_out):
        plans = [stack for stack in ("encoder", "decoder") if stack in self.description_flags]
        if plans and not any(stack in stored for stack in plans):
            raise InputError(
                "the checkpoint is of a model without a layer plan, as those of --arch frozen_... are: "
                f"{type(self).__name__} starts from its own checkpoints and from fairseq's of that shape"
            )
        for field, flag in self._differences(stored | leaves_out, own).items():
            # --reset-optimizer does not help with tensors that are drawn from the seed: they would keep the values of the checkpoint.
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
        """Refuse a checkpoint with trained values, or values of another seed, for a tensor that this model draws from the seed.

        ``stored`` is the description of the checkpoint, empty if it has no description.
        """
        entries, own = {entry.name: entry for entry in self.slot_table.entries}, self.state_dict()
        for name in getattr(self, "recipes", {}):
            given = state_dict.get(prefix + name)
            if name not in entries or given is None or own[name].is_meta or _may_be_drawn_here(given, own[name]):
                continue
            # The descriptions agree on letters and masks. Their tensors may be from a file, or of a trained LayerNorm.
            if stored and not (entries[name].frozen_init or atom(name) == ADAPTER):
                continue
            here, seed = read_description(self.reservoir_version), stored.get("frozen_seed")
            of_none = "" if stored else ", which describes no tensor as random,"
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
    """Whether a tensor equals the one that is drawn here, up to the rounding of another machine or of half precision.

    Tensors of another shape return True, because loading refuses them.
    """
    return given.shape != own.shape or torch.allclose(
        given.to(own.device, torch.float32), own.float(), rtol=1e-2, atol=1e-4
    )


def refuse_change(flag: str, given, trained, can_reset: bool) -> None:
    """Refuse to resume from a checkpoint that was trained with another value of a flag.

    Args:
        flag: with its dashes.
        given, trained: the value now and that of the checkpoint; None if it was not given.
        can_reset: whether another value is allowed with --reset-optimizer.

    Raises:
        InputError: always.
    """
    shown = flag if given is True else f"{flag} {'not given' if given is None else given}"
    if flag == "--reservoir-seed":
        shown += " (--seed, where it is not given)"
    value = "it" if trained is True else trained
    was, same = ("without it", "leave it out") if trained is None else (f"with {value}", f"give {value}")
    resumed = resuming.get()
    elsewhere = (
        "in another --save-dir"
        if resumed is not None and resumed.save_dir_has_a_checkpoint
        else "without that checkpoint"
    )
    raise InputError(
        f"{shown}: the checkpoint was trained {was}; "
        f"{same}{', or --reset-optimizer' if can_reset else ''}, or start a new training {elsewhere}"
    )


def read_description(buffer: torch.Tensor) -> dict:
    """The description in a checkpoint's buffer ``reservoir_version``.

    Raises:
        InputError: it is damaged.
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
    """The fields of a description with the kept layers."""
    return {field: description[field] for field in PRUNING_FLAGS if description.get(field)}


def _encode(description) -> torch.Tensor:
    """The bytes of a JSON text, one in each entry, in ASCII.

    int32, since a sum of checkpoints has to hold: fairseq's script for averages adds up integer tensors before it divides them. NCCL
    sends no int16. A floating-point tensor would be rounded by --fp16. Older files have int64.
    """
    text = json.dumps({**description, _HASH: _hash_of(description)}, sort_keys=True)
    return torch.tensor(list(text.encode()), dtype=torch.int32)


def _hash_of(description):
    return hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()[:16]
