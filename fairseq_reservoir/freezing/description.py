"""Store the plan, seed and flags of a model in its checkpoints, and refuse to resume with other values."""

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
from .regenerated import regenerate


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
# Adapter flags. A new training may add them to the model of a checkpoint, but cannot change or remove them.
_ADDITIONS = ("frozen_adapter", "frozen_adapter_rank", "frozen_adapter_scale")
# Flags that are stored for earlier versions, but not compared, because no tensor depends on them.
NOT_COMPARED = ("embed_min_coverage",)
# Flags that remove layers from a model. All other fields of a description describe the model with all its layers.
PRUNING_FLAGS = {f"{stack}_layers_to_keep": f"--{stack}-layers-to-keep" for stack in ("encoder", "decoder")}


class DescribedInCheckpoint:
    """Mix-in for a model: store a description of the model in state dicts, and check the description when a state dict is loaded.

    The description is a JSON text in an integer buffer, one character per entry. The buffer does not change in half precision, in moving
    averages, or in the average of checkpoints with equal descriptions. The average of two different texts can be a third valid text. A
    hash in the text detects such an average.

    A checkpoint of plain fairseq has no description. It is refused if a tensor that this model draws from the seed has other values
    in the checkpoint. Random layers of the plan and --frozen-init draw tensors from the seed. --freeze alone keeps the values of the
    checkpoint.

    With ``--encoder-layers-to-keep``, the description describes the unpruned model, and also contains the numbers of the kept layers. The
    pruned model loads checkpoints of the unpruned and of the pruned model.
    """

    # Field of the description -> its flag. ``description_flags`` must always agree with the checkpoint. ``resume_flags`` must agree only
    # when the optimizer's state is restored, except adapter flags, which must always agree if the checkpoint has adapters.
    description_flags: dict[str, str] = {}
    resume_flags: dict[str, str] = {}
    # Reason why this model cannot load only some layers of a checkpoint; None if it can.
    whole_only: str | None = None
    # Pruning flag -> its value, such as "0,2". Empty if no stack is pruned.
    keeps: dict[str, str] = {}

    # Whether to draw random tensors when their layer runs (``regenerate``).
    regenerate_weights = False

    register_buffer: Callable[..., None]

    def remember_description(self, description: dict, kept: dict[str, str]) -> None:
        """Store the description of a built model.

        Args:
            description: the fields of the unpruned model; the values have JSON types.
            kept: stack -> its kept layers, such as "0,2"; empty if all layers are kept.
        """
        pruning = {f"{stack}_layers_to_keep": layers for stack, layers in kept.items()}
        self.keeps = {PRUNING_FLAGS[field]: layers for field, layers in pruning.items()}
        self.register_buffer(BUFFER, _encode(description | pruning))

    def make_generation_fast_(self, **kwargs):
        """Prepare the model for inference: merge adapters, run fairseq's preparation, then release tensors that can be drawn again."""
        merge_adapters(self)
        is_first = not getattr(self, "_is_generation_fast", False)
        super().make_generation_fast_(**kwargs)
        if self.regenerate_weights and is_first:
            regenerate(self)

    def load_state_dict(self, state_dict, strict=True, model_cfg=None, args=None):
        """Load a state dict as fairseq does. With ``strict``, a state dict without a description must contain all random tensors."""
        if strict and BUFFER not in state_dict:
            self._prune(state_dict)
            self._refuse_without_random_tensors(state_dict)
        return super().load_state_dict(state_dict, strict, model_cfg, args)

    def upgrade_state_dict_named(self, state_dict, name):
        """Prune a state dict, compare its description with the model's, and complete it.

        fairseq calls this method before it loads a state dict, and would prune the state dict itself later. It is pruned here, because the
        comparison needs the same layer numbers in the model and in the state dict.

        Raises:
            InputError: the checkpoint belongs to another model.
        """
        if not name:
            self._prune(state_dict)
        super().upgrade_state_dict_named(state_dict, name)
        prefix = f"{name}." if name else ""
        key = prefix + BUFFER
        fit_state(self, state_dict, prefix, resuming=bool(resuming.get()))
        if key not in state_dict:
            self._refuse_other_values(state_dict, prefix, {})
            state_dict[key] = self.reservoir_version
            return state_dict
        stored, own = read_description(state_dict[key]), read_description(self.reservoir_version)
        # Only a checkpoint of the whole model is pruned.
        pruning = {} if _kept(stored) else _kept(own)
        self._refuse_differences(stored, own, pruning)
        changed = {field: own.get(field) for field in self.resume_flags if own.get(field) != stored.get(field)}
        if changed and not resuming.get():
            self._refuse_other_values(state_dict, prefix, stored)
        # New checkpoints store the flags of this training.
        if changed or pruning:
            state_dict[key] = _encode(stored | changed | pruning)
        self.register_buffer(BUFFER, state_dict[key].to(self.reservoir_version.device))
        return state_dict

    def _prune(self, state_dict):
        stored = read_description(state_dict[BUFFER]) if BUFFER in state_dict else {}
        kept = _kept(read_description(self.reservoir_version))
        if not kept or _kept(stored):
            return
        pruned = dict(state_dict)
        if hasattr(self, "register_classification_head"):
            # RoBERTa checkpoints from before 2020 call the stack "decoder". fairseq renames it later.
            pruned = {re.sub("^decoder\\.", "encoder.", key): tensor for key, tensor in pruned.items()}
        # fairseq's function reads the kept layers from the options of a model.
        pruned = checkpoint_utils.prune_state_dict(pruned, Namespace(arch=type(self).__name__, **kept))
        state_dict.clear()
        state_dict.update(pruned)

    def _refuse_differences(self, stored, own, pruning):
        plans = [stack for stack in ("encoder", "decoder") if stack in self.description_flags]
        if plans and not any(stack in stored for stack in plans):
            raise InputError(
                "the checkpoint is of a model without a layer plan, such as --arch frozen_...; "
                f"give a checkpoint of {type(self).__name__}, "
                "or of fairseq's model with the same shape"
            )
        for field, flag in self._differences(stored | pruning, own).items():
            # --reset-optimizer does not help if tensors are drawn from the seed, because they would get the values of the checkpoint.
            is_drawn = field in ("frozen_init", "frozen_seed") and own.get(field) is not None
            can_reset = field in self.resume_flags and field not in self._adapter_flags(stored) and not is_drawn
            refuse_change(flag, own.get(field), stored.get(field), can_reset)
        if pruning and self.whole_only:
            given = " ".join(f"{PRUNING_FLAGS[field]} {layers}" for field, layers in pruning.items())
            raise InputError(f"{given}: {self.whole_only}")

    def _refuse_without_random_tensors(self, state_dict):
        own = self.state_dict()
        for name in getattr(self, "recipes", {}):
            # Adapters and their shared random tensors may be missing, because --frozen-adapter adds them to any checkpoint.
            if name in own and name not in state_dict and atom(name) != ADAPTER:
                raise InputError(
                    f"the checkpoint has no {name}, so it is of another architecture; give a checkpoint of {type(self).__name__}"
                )

    def _refuse_other_values(self, state_dict, prefix, stored):
        """Refuse a checkpoint if one of its tensors differs from the tensor that this model draws from the seed.

        ``stored`` is the description in the checkpoint, or an empty dictionary if the checkpoint has no description.
        """
        entries, own = {entry.name: entry for entry in self.slot_table.entries}, self.state_dict()
        for name in getattr(self, "recipes", {}):
            given = state_dict.get(prefix + name)
            if name not in entries or given is None or own[name].is_meta or _may_be_drawn_here(given, own[name]):
                continue
            # Descriptions agree on letters and masks. Their tensors may differ from the seed's, for example if they come from a file.
            if stored and not (entries[name].frozen_init or atom(name) == ADAPTER):
                continue
            here, seed = read_description(self.reservoir_version), stored.get("frozen_seed")
            subject = "the checkpoint's" if stored else "the checkpoint has no description of random tensors, and its"
            others = f"{subject} {name} differs from the tensor drawn from the seed"
            init, where = entries[name].frozen_init, layer_of(entries[name].random_name or name)
            if seed is not None and seed != here.get("frozen_seed") and (init or atom(name) == ADAPTER):
                raise InputError(
                    f"--reservoir-seed {here.get('frozen_seed')} (default: --seed): {others}; give --reservoir-seed {seed}"
                )
            if init:
                raise InputError(
                    f"--frozen-init {init}: {others}; remove --frozen-init to freeze the values of the checkpoint"
                )
            if where is None or where[0] not in self.description_flags:
                raise InputError(f"{others}; give a checkpoint of this architecture")
            stack, plan = where[0], here[where[0]]
            letter = plan[where[1]]
            raise InputError(
                f"{self.description_flags[stack]} {plan}: {letter} is a random layer, but {others}. To freeze the values of the "
                f"checkpoint, write the letter of a trained layer instead of {letter}, and add --freeze {stack}.layers.{where[1]}"
            )

    def _adapter_flags(self, stored):
        """Return the adapter flags in the description of a checkpoint. A new training cannot change or remove them."""
        return {field: self.resume_flags[field] for field in _ADDITIONS if stored.get(field) is not None}

    def _differences(self, stored, own):
        compared = {
            **self.description_flags,
            **PRUNING_FLAGS,
            **(self.resume_flags if resuming.get() else self._adapter_flags(stored)),
        }
        return {field: flag for field, flag in compared.items() if stored.get(field) != own.get(field)}


def _may_be_drawn_here(given, own):
    """Whether the tensor ``given`` equals the drawn tensor ``own``, except for rounding by another machine or by half precision.

    Also true if the shapes differ, because fairseq itself then refuses to load ``given``.
    """
    return given.shape != own.shape or torch.allclose(
        given.to(own.device, torch.float32), own.float(), rtol=1e-2, atol=1e-4
    )


def refuse_change(flag: str, given, trained, can_reset: bool) -> None:
    """Refuse to resume from a checkpoint that was trained with another value of ``flag``.

    Args:
        flag: the flag with its dashes.
        given: the value of the flag in this training; None if the flag is not given.
        trained: the value of the flag in the training of the checkpoint; None if it was not given.
        can_reset: whether another value is allowed with --reset-optimizer.

    Raises:
        InputError: always.
    """
    shown = flag if given is True else f"{flag} {'not given' if given is None else given}"
    if flag == "--reservoir-seed":
        shown += " (default: --seed)"
    was, same = f"with {trained}", f"give {trained}"
    if trained is None:
        was, same = "without this flag", "remove it"
    elif trained is True:
        was, same = "with this flag", "give it"
    resumed = resuming.get()
    elsewhere = "in another --save-dir" if resumed and resumed.save_dir_has_a_checkpoint else "without that checkpoint"
    raise InputError(
        f"{shown}: the checkpoint was trained {was}; "
        f"{same}{', add --reset-optimizer' if can_reset else ''}, or start a new training {elsewhere}"
    )


def read_description(buffer: torch.Tensor) -> dict:
    """Decode the description in a checkpoint's buffer ``reservoir_version``.

    Raises:
        InputError: the description is damaged.
    """
    try:
        description = json.loads(bytes(buffer.tolist()))
        if description.pop(_HASH, None) in (None, _hash_of(description)):
            return description
    except (ValueError, TypeError, AttributeError):
        pass
    raise InputError(
        f"{BUFFER}: the checkpoint's description of its model is damaged, for example because checkpoints with different seeds or plans"
        " were averaged; 'fairseq-reservoir average' compares the checkpoints first"
    )


def _kept(description) -> dict[str, str]:
    """Return the kept layers in a description: pruning field -> layer numbers, such as "0,2"."""
    return {field: description[field] for field in PRUNING_FLAGS if description.get(field)}


def _encode(description) -> torch.Tensor:
    """Encode a description as an int32 tensor. The tensor contains the ASCII characters of the description's JSON text.

    int32 does not overflow in fairseq's script for averages, which adds up integer tensors before it divides them. NCCL cannot send
    int16. --fp16 would round a floating-point tensor. Older checkpoints have an int64 tensor.
    """
    text = json.dumps({**description, _HASH: _hash_of(description)}, sort_keys=True)
    return torch.tensor(list(text.encode()), dtype=torch.int32)


def _hash_of(description):
    return hashlib.sha256(json.dumps(description, sort_keys=True).encode()).hexdigest()[:16]
