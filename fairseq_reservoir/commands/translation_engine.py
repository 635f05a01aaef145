"""Choose CTranslate2 or torch to compute translations, and open the model."""

import logging
import os
import runpy
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..options.command_options import GENERATION_GRAPHS

logger = logging.getLogger(__name__)
ENGINES = ("auto", "ctranslate2", "torch")
_NEEDS_TORCH = "use --engine torch (run bash scripts/setup.sh in a clone)"


def add_flags(parser) -> None:
    parser.add_argument(
        "--engine",
        choices=ENGINES,
        default="auto",
        help="ctranslate2: fast on a CPU, needs no torch; only for Transformers with plans of L and T, frozen components or learned masks."
        " torch: for all models and for GPUs. auto: ctranslate2 if it is installed and supports the model, and no GPU is found; else torch."
        " --verbose prints the chosen engine (default %(default)s)",
    )
    parser.add_argument(
        "--int8",
        action="store_true",
        help="multiply in 8 bits: faster and less exact than without this flag; needs CTranslate2",
    )


def open_translator(known: Any) -> Any:
    """Open the model that the command's flags name. Log the chosen engine and the reason for the choice.

    Returns:
        An object with the methods ``hypotheses``, ``longest_source`` and ``longest_target``.

    Raises:
        InputError: the model is not usable, or the engine does not support a flag.
    """
    _check_flags(known)
    reason = _reason_for_torch(known)
    if not reason:
        from ..checkpoint.without_torch.translator import PACKAGE, open_translator as without_torch
        from ..checkpoint.without_torch.weights import CannotConvert

        try:
            translator = without_torch(known.model, known.int8)
            logger.info("engine: %s", translator.engine)
            return translator
        except CannotConvert as error:
            reason = str(error)
            if known.engine == PACKAGE or known.int8 or not _has_torch():
                raise InputError(f"{reason}; {_NEEDS_TORCH}{' without --int8' * known.int8}") from error
    logger.info("engine: torch, because %s", reason)
    return _with_torch(known)


def _check_flags(known: Any) -> None:
    if known.engine == "ctranslate2":
        for flag, given in _flags_of_torch(known):
            if given:
                raise InputError(f"{flag}: works only with --engine torch; remove {flag} or --engine ctranslate2")
    if known.int8 and known.engine == "torch":
        raise InputError("--int8: works only with --engine ctranslate2; remove --int8 or --engine torch")


def _flags_of_torch(known: Any) -> list[tuple[str, Any]]:
    """Return the flags that only torch honours, with their values."""
    return [
        ("--cuda-graphs", known.cuda_graphs),
        ("--user-dir", known.user_dir),
        ("--regenerate-weights", known.regenerate_weights),
    ]


def _reason_for_torch(known: Any) -> str | None:
    """Return the reason why torch must translate, or None if CTranslate2 translates.

    Raises:
        InputError: ``--int8`` is given but torch would translate, or CTranslate2 is required but not installed.
    """
    if known.engine == "torch":
        reason = "of --engine torch"
    elif not find_spec("ctranslate2"):
        if known.engine == "ctranslate2" or known.int8:
            flag = "--int8" if known.int8 else "--engine ctranslate2"
            raise InputError(f"{flag}: needs the package ctranslate2, which is not installed: pip install ctranslate2")
        reason = "the package ctranslate2 is not installed"
    elif known.engine == "ctranslate2":
        return None
    elif given := [flag for flag, value in _flags_of_torch(known) if value]:
        reason = f"of {given[0]}"
    elif not known.int8 and not known.cpu and _has_torch() and _gpus() and _torch_is_for_gpus():
        reason = "this machine has a GPU"
    else:
        return None
    if known.int8:
        raise InputError(f"--int8: needs --engine ctranslate2, but torch translates because {reason}")
    return reason


def _has_torch() -> bool:
    return bool(find_spec("torch") and find_spec("fairseq"))


def _gpus() -> int:
    import ctranslate2

    try:
        return int(ctranslate2.get_cuda_device_count())
    except (RuntimeError, ValueError):  # a driver that is too old, for example
        return 0


def _torch_is_for_gpus() -> bool:
    """Whether the installed torch is a build for GPUs. Reads only torch's version file, because importing torch would take seconds."""
    found = find_spec("torch")
    file = Path(found.origin).with_name("version.py") if found and found.origin else None
    if file is None or not file.is_file():
        return False
    build = runpy.run_path(str(file))
    return any(build.get(name) for name in ("cuda", "hip", "xpu"))


def _with_torch(known: Any) -> Any:
    known.prepare()
    import torch

    from ..checkpoint import load_translator

    if known.cuda_graphs:
        os.environ.setdefault(GENERATION_GRAPHS, "1")
    overrides: dict[str, Any] = {"regenerate_weights": True} if known.regenerate_weights else {}
    translator = load_translator(known.model, **overrides)
    if torch.cuda.is_available() and not known.cpu:
        translator.cuda()
    return translator
