"""Refuse files that a training cannot start from."""

import os
from collections.abc import Iterator
from typing import Any

from fairseq.file_io import PathManager

from ..errors import InputError, flag_of
from ..files import check_file
from ..options.component_options import ComponentOptions
from ..options.fairseq_flags import CheckpointFlags, ModelFlags
from ..options.reading import read
from ..plan import freeze_spec
from . import export_file
from .damage import reading, refuse_damaged
from .meta_checkpoint import read_state

# fairseq's default of --restore-file, in --save-dir.
_DEFAULT = "checkpoint_last.pt"


def check_start(config: Any, model: Any) -> None:
    """Refuse to start from an export that lacks tensors. Refuse flags that set initial values if another flag would replace these values.

    An export has mask entries in place of scores. By default, training with mask entries as scores would never restore a dropped weight:
    its score is 0, and the gradient of the score is multiplied by the sign of the score, which is also 0. An export also has levels in
    place of latent weights.

    Args:
        config: fairseq's options of the group ``checkpoint``.
        model: options of the model.

    Raises:
        InputError: two flags name a file to start from; the training would resume from an export, or start from an export with masks
            or rounded weights; ``--frozen-init``, ``--start-encoder-from`` or ``--start-decoder-from`` contradicts another flag; or the
            file of one of the last two is missing.
    """
    flags, checkpoints = read(ComponentOptions, model), read(CheckpointFlags, config)
    _refuse_two_starts(checkpoints)
    frozen_init = flags.frozen_init or "model"
    if checkpoints.finetune_from_model and frozen_init != "model":
        raise InputError(
            f"--frozen-init {frozen_init}: has no effect with --finetune-from-model, which sets all values; remove one of them"
        )
    if frozen_init != "model":
        _refuse_lost_vectors(model, frozen_init)
    for stack, start in (("encoder", flags.start_encoder_from), ("decoder", flags.start_decoder_from)):
        if start:
            _check_stack(config, model, stack, start)
    for flag in ("restore_file", "continue_once", "finetune_from_model"):
        path: Any = vars(checkpoints)[flag]
        if not export_file.is_export(path):
            continue
        name = f"{flag_of(flag)} {path}"
        with reading(path):
            body = export_file.read_body(path)
        for found, missing in (("masks", "scores"), ("levels", "latent weights")):
            if body.get(found):
                raise InputError(
                    f"{name}: is an export with {found}, but without the {missing} that training needs; give the original checkpoint"
                )
        if flag != "finetune_from_model":
            raise InputError(
                f"{name}: is an export, which has no optimizer state; give the original checkpoint, or start a new"
                f" training with --finetune-from-model {path}"
            )


def _refuse_two_starts(flags: CheckpointFlags) -> None:
    """Refuse two files to start from. fairseq would ignore one of them, or end in a traceback after reading the data."""
    given = [
        flag_of(name)
        for name in ("restore_file", "continue_once", "finetune_from_model")
        if vars(flags)[name] not in (None, _DEFAULT)
    ]
    if len(given) > 1:
        raise InputError(f"{' and '.join(given)}: name only one file to start from")
    for name in ("reset_optimizer", "reset_lr_scheduler", "reset_meters", "reset_dataloader"):
        if flags.finetune_from_model and vars(flags)[name]:
            raise InputError(
                f"{flag_of(name)}: not needed with --finetune-from-model, which resets optimizer, learning rate, meters and data;"
                " remove the flag"
            )


def _check_stack(config: Any, model: Any, stack: str, path: str) -> None:
    """Refuse ``--start-encoder-from`` or ``--start-decoder-from`` if its file is missing, or if another flag initialises the same stack."""
    given = f"--start-{stack}-from {path}"
    checkpoints = read(CheckpointFlags, config)
    for other in ("finetune_from_model", "restore_file"):
        if vars(checkpoints)[other] not in (None, _DEFAULT):
            raise InputError(f"{given}: has no effect with {flag_of(other)}, which sets all values; remove one of them")
    if _vectors_of(read(ModelFlags, model))[stack]:
        raise InputError(f"{given}: would replace the vectors of --{stack}-embed-path; remove one of them")
    if os.path.exists(path) or not starts_from_checkpoint(config):
        check_file(f"--start-{stack}-from", path)


def _refuse_lost_vectors(model: Any, frozen_init: str) -> None:
    """Refuse word vectors for an embedding that --freeze freezes at the values of --frozen-init."""
    flags, components = read(ModelFlags, model), read(ComponentOptions, model)
    shared, tied = flags.share_all_embeddings, flags.share_decoder_input_output_embed
    names = {stack: {f"{stack}.embed_tokens.weight"} for stack in ("encoder", "decoder")}
    if shared or tied:
        names["decoder"].add("decoder.output_projection.weight")
    if shared:
        names["encoder"] |= names["decoder"]
    for stack, path in _vectors_of(flags).items():
        if path and _is_frozen(names[stack], components.freeze, components.freeze_except):
            raise InputError(
                f"--frozen-init {frozen_init}: would replace the frozen vectors of --{stack}-embed-path {path}; remove one of them"
            )


def _vectors_of(flags: ModelFlags) -> dict[str, str | None]:
    """Return the embedding file of each stack."""
    return {"encoder": flags.encoder_embed_path, "decoder": flags.decoder_embed_path}


def _is_frozen(names: set[str], freeze: str | None, spared: str | None) -> bool:
    """Return whether ``--freeze`` and ``--freeze-except`` freeze the parameter that has these ``names``."""

    def named(spec: str, flag: str) -> bool:
        return any(item.matches(name) for item in freeze_spec.parse(spec, flag) for name in names)

    chosen = named(freeze, "--freeze") if freeze else bool(spared)
    return chosen and not (spared and named(spared, "--freeze-except"))


def check_whole(config: Any) -> None:
    """Refuse to start from a file that is missing, corrupted or not a checkpoint.

    fairseq trains from scratch if ``--restore-file`` names a missing file or a folder, or if ``--finetune-from-model`` names a folder.
    Training from scratch is intended only if the default file, ``checkpoint_last.pt``, does not exist. A default file that is a broken link
    is refused, because the user expects to resume from the link's target.

    Raises:
        InputError: a file is not usable. The message names the flag, the file, and an intact checkpoint if there is one.
    """
    for flag, path in _start_files(config):
        if "://" in path:
            _check_address(flag, path)
            continue
        if os.path.islink(path) and not os.path.exists(path):
            raise InputError(
                f"{flag} {path}: is a link to {os.readlink(path)}, which does not exist; restore that file, or remove the link"
            )
        check_file(flag, path)
        refuse_damaged(path, f"{flag} ")
        read_state(path, flag)


def starts_from_checkpoint(config: Any) -> bool:
    """Return whether the training starts from a checkpoint."""
    return any(_start_files(config))


def _check_address(flag: str, path: str) -> None:
    """Check that a remote file exists, if its handler supports this. fairseq reads it later."""
    try:
        found = PathManager.exists(path)
    except NotImplementedError:
        return
    except Exception as error:
        raise InputError(
            f"{flag} {path}: cannot be checked ({' '.join(str(error).split()) or type(error).__name__})"
        ) from error
    if not found:
        raise InputError(f"{flag} {path}: no such file")


def _start_files(config: Any) -> Iterator[tuple[str, str]]:
    """Yield (flag, file) for each file from which the training starts. The default file is included if it exists or is a broken link."""
    flags = read(CheckpointFlags, config)
    suffix = flags.checkpoint_suffix or ""
    if config.restore_file != _DEFAULT:
        yield "--restore-file", config.restore_file.replace(".pt", f"{suffix}.pt")
    elif os.path.lexists(last := os.path.join(config.save_dir, _DEFAULT.replace(".pt", f"{suffix}.pt"))):
        yield "--restore-file", last
    for flag, path in (
        ("--continue-once", flags.continue_once),
        ("--finetune-from-model", flags.finetune_from_model),
    ):
        if path is not None:
            yield flag, path
