"""What a checkpoint says of the plan and seed it was trained with, and the refusal of another."""

import json
from contextvars import ContextVar

import torch

from .errors import InputError
from .philox import GENERATOR

# True while fairseq restores a checkpoint together with its optimizer state.
resuming = ContextVar("resuming", default=False)
# fairseq's moving average leaves alone what has "version" in its name.
BUFFER = "reservoir_version"
_FLAGS = {
    "encoder": "--reservoir-encoder",
    "decoder": "--reservoir-decoder",
    "seed": "--reservoir-seed",
    "generator": "generator of frozen tensors",
}
_FLAGS_OF_RESUME = {"freeze": "--freeze", "freeze_except": "--freeze-except"}


class CheckpointIdentity:
    """Keeps plan, seed and freeze spec in the state dict and compares them when one is loaded.

    They travel as the bytes of a JSON text in an int64 buffer, which half precision, averaging of checkpoints and the
    moving average leave as it is. A checkpoint without it (plain fairseq's) is accepted.
    """

    def remember_identity(self, plans, options):
        """Called once the model is built.

        Args:
            plans: the slots of each stack, as built.
            options: the model's options, whose plans are those of the checkpoint before any pruning.
        """
        self.trained_plans = {stack: getattr(options, f"reservoir_{stack}") for stack in plans}
        frozen = any(slot.frozen for slots in plans.values() for slot in slots)
        identity = {
            **{stack: "".join(slot.letter for slot in slots) for stack, slots in plans.items()},
            "origins": {stack: [slot.origin for slot in slots] for stack, slots in plans.items()},
            "seed": options.reservoir_seed if frozen else None,
            "generator": GENERATOR if frozen else None,
            "freeze": options.freeze,
            "freeze_except": options.freeze_except,
        }
        self.register_buffer(BUFFER, _encode(identity))

    def upgrade_state_dict_named(self, state_dict, name):
        super().upgrade_state_dict_named(state_dict, name)
        key = f"{name}.{BUFFER}" if name else BUFFER
        stored = state_dict.get(key)
        if stored is None or _decode(stored) == _decode(self.reservoir_version):
            state_dict[key] = self.reservoir_version
        elif self._pruned_from(_decode(stored)):
            state_dict[key] = self.reservoir_version
        else:
            self._refuse_other(_decode(stored))
            self.register_buffer(BUFFER, stored.to(self.reservoir_version.device))
        return state_dict

    def _pruned_from(self, stored):
        own = _decode(self.reservoir_version)
        pruned = any(own[stack] != plan for stack, plan in self.trained_plans.items())
        return pruned and all(stored[stack] == plan for stack, plan in self.trained_plans.items())

    def _refuse_other(self, stored):
        own = _decode(self.reservoir_version)
        for field, flag in {**_FLAGS, **(_FLAGS_OF_RESUME if resuming.get() else {})}.items():
            if stored.get(field) != own.get(field):
                advice = " or --reset-optimizer" if field in _FLAGS_OF_RESUME else ""
                raise InputError(
                    f"{flag} {own.get(field)}: the checkpoint was trained with {stored.get(field)}; give that{advice}, or "
                    "train anew in another --save-dir"
                )


def _encode(identity) -> torch.Tensor:
    return torch.tensor(list(json.dumps(identity, sort_keys=True).encode()), dtype=torch.int64)


def _decode(buffer: torch.Tensor) -> dict:
    return json.loads(bytes(buffer.tolist()))
