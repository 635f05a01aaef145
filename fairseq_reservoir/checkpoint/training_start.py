"""Refuses files that a training run cannot start from."""

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
from . import packed_file
from .damage import reading, refuse_damaged
from .opened import read_state

# What fairseq restores if nothing is said, from --save-dir.
_DEFAULT = "checkpoint_last.pt"


def check_start(config: Any, model: Any = None) -> None:
    """Refuses exports that training would have to go on from, and initial values that a checkpoint's would replace.

    In place of scores an export holds mask entries. Training on those would never bring a dropped weight back: its score
    is 0, and with it the sign that its gradient is multiplied by. In place of latent weights it holds the levels they are rounded to.

    Args:
        config: fairseq's options of the group ``checkpoint``.
        model: those of the model.

    Raises:
        InputError: the file to start from is an export without optimizer state, or one of masks or rounded weights; or with a
            model to start from, or vectors of words, that which these would give is to be drawn; or a file that one stack is to start
            from is not there, or would not be used.
    """
    flags, checkpoints = read(ComponentOptions, model), read(CheckpointFlags, config)
    frozen_init = flags.frozen_init or "model"
    if checkpoints.finetune_from_model and frozen_init != "model":
        raise InputError(
            f"--frozen-init {frozen_init}: has no effect with --finetune-from-model, whose values are taken; leave one of them out"
        )
    if frozen_init != "model":
        _refuse_lost_vectors(model, frozen_init)
    for stack, start in (("encoder", flags.start_encoder_from), ("decoder", flags.start_decoder_from)):
        if start:
            _check_stack(config, model, stack, start)
    for flag in ("restore_file", "continue_once", "finetune_from_model"):
        path: Any = vars(checkpoints)[flag]
        if not str(path).endswith(packed_file.SUFFIX):
            continue
        name = f"{flag_of(flag)} {path}"
        with reading(path):
            body = packed_file.read_body(path)
        for found, missing in (("masks", "scores"), ("levels", "latent weights")):
            if body.get(found):
                raise InputError(
                    f"{name}: an export of {found}, without the {missing} that training needs; give the checkpoint it was made from"
                )
        if flag != "finetune_from_model":
            raise InputError(
                f"{name}: an export, without the optimizer's state; give the checkpoint it was made from, or start a new"
                f" training with --finetune-from-model {path}"
            )


def _check_stack(config: Any, model: Any, stack: str, path: str) -> None:
    """Refuses to start a stack from what is no file, or beside what would take its place, or of which it would take the place."""
    given = f"--start-{stack}-from {path}"
    checkpoints = read(CheckpointFlags, config)
    for other in ("finetune_from_model", "restore_file"):
        if vars(checkpoints)[other] not in (None, _DEFAULT):
            raise InputError(
                f"{given}: has no effect with {flag_of(other)}, whose values are taken; leave one of them out"
            )
    if _vectors_of(read(ModelFlags, model))[stack]:
        raise InputError(f"{given}: would take the place of the vectors of --{stack}-embed-path; leave one of them out")
    if os.path.exists(path) or not goes_on(config):
        check_file(f"--start-{stack}-from", path)


def _refuse_lost_vectors(model: Any, frozen_init: str) -> None:
    """Refuses to read word vectors into a table that is frozen at other values then."""
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
                f"--frozen-init {frozen_init}: would take the place of the vectors of --{stack}-embed-path {path}, which are frozen;"
                " leave one of them out"
            )


def _vectors_of(flags: ModelFlags) -> dict[str, str | None]:
    """The file of word vectors of each stack."""
    return {"encoder": flags.encoder_embed_path, "decoder": flags.decoder_embed_path}


def _is_frozen(names: set[str], freeze: str | None, spared: str | None) -> bool:
    """Whether a parameter of these names is frozen by ``--freeze`` and ``--freeze-except``."""

    def named(spec: str, flag: str) -> bool:
        return any(item.matches(name) for item in freeze_spec.parse(spec, flag) for name in names)

    chosen = named(freeze, "--freeze") if freeze else bool(spared)
    return chosen and not (spared and named(spared, "--freeze-except"))


def check_whole(config: Any) -> None:
    """Refuses to start from what is not there, is no checkpoint or is a damaged one.

    fairseq trains from scratch when the file of ``--restore-file`` is not there or is a folder, and when that of
    ``--finetune-from-model`` is a folder. It may do so only when ``checkpoint_last.pt``, which nobody named, is absent. A link to a
    file that is not there counts as damaged, because its training would be lost without a word.

    Raises:
        InputError: one line with the flag and the file, of a damaged one also what to take instead.
    """
    for flag, path in _starts(config):
        if "://" in path:
            _check_address(flag, path)
            continue
        if os.path.islink(path) and not os.path.exists(path):
            raise InputError(
                f"{flag} {path}: is a link to {os.readlink(path)}, and there is no such file; restore it, or remove the link"
            )
        check_file(flag, path)
        refuse_damaged(path, f"{flag} ")
        read_state(path, flag)


def goes_on(config: Any) -> bool:
    """Whether the model's values come from a checkpoint, as those of a training that goes on."""
    return any(True for _ in _starts(config))


def _check_address(flag: str, path: str) -> None:
    """Of a file elsewhere only this: it is there. Handlers that cannot say so are asked for it later, by fairseq."""
    try:
        found = PathManager.exists(path)
    except NotImplementedError:
        return
    except Exception as error:
        raise InputError(
            f"{flag} {path}: cannot be looked for: {' '.join(str(error).split()) or type(error).__name__}"
        ) from error
    if not found:
        raise InputError(f"{flag} {path}: no such file")


def _starts(config: Any) -> Iterator[tuple[str, str]]:
    """The files from which training is to start, each with its flag; the default ``checkpoint_last.pt`` only if it, or a link, is there."""
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
