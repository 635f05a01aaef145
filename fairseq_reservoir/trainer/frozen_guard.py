"""Refuse to save a checkpoint if a frozen tensor has changed since the training started.

The rank that saves checkpoints hashes the frozen tensors when the training starts, and again before each save.
"""

import torch

from ..checkpoint.ledger import ledger
from ..errors import InputError
from ..options.layer_options import ReservoirOptions
from ..options.reading import read
from ..plan.kinds import frozen_letters
from ..random_tensors import digest


def frozen_tensors(trainer) -> dict[str, torch.Tensor]:
    """Return the frozen and the random tensors of a model of this package, except tensors of a freeze schedule."""
    model = trainer.get_model()
    if not hasattr(model, "slot_table"):
        return {}
    tensors = model.state_dict(keep_vars=True)
    names = (item.name for item in ledger(model).with_roles("random", "frozen"))
    return {name: tensors[name] for name in names if name not in trainer.scheduled}


def hashes(trainer) -> dict[str, str]:
    """Return the SHA-256 of every frozen or random tensor, by name."""
    return {name: digest.of_tensor(tensor) for name, tensor in frozen_tensors(trainer).items()}


def take_hashes(trainer) -> None:
    """Hash the frozen tensors when a training starts. If the training resumes, call this after the checkpoint is loaded."""
    trainer.frozen_hashes = hashes(trainer) if trainer.should_save_checkpoint_on_current_rank else {}


def refuse_changes(trainer, filename: str) -> None:
    """Compare the frozen tensors with their hashes before a checkpoint is saved.

    Raises:
        InputError: a frozen tensor has changed.
    """
    began = trainer.frozen_hashes
    if began:
        now = hashes(trainer)
        changed = [name for name, value in began.items() if now.get(name) != value]
        if changed:
            others = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
            raise InputError(
                f"{filename}: not saved, because the frozen tensor {changed[0]}{others} changed during training; earlier checkpoints are "
                "unaffected"
            )


def refuse_quantization(cfg) -> None:
    """Refuse quantization with code books if the model has frozen tensors, because code books would replace the frozen matrices."""
    path = cfg.common.quantization_config_path
    if path and freezes(cfg.model):
        raise InputError(
            f"--quantization-config-path {path}: would replace frozen matrices and masks by code books; remove the flag"
        )


def freezes(model) -> bool:
    """Whether a model's configuration freezes or masks at least one tensor."""
    flags = read(ReservoirOptions, model)
    plans = (flags.reservoir_encoder or "") + (flags.reservoir_decoder or "")
    given = (flags.freeze, flags.freeze_except, flags.reservoir_count, flags.reservoir_decoder_count)
    return any(letter in plans for letter in frozen_letters()) or any(given) or hasattr(model, "mask_keep_ratio")
