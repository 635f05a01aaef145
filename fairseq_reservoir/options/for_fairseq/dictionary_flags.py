"""Parse and check flags that contain a dictionary in JSON or Python syntax. Invalid values are refused before any work starts."""

import ast
import dataclasses
import json
from argparse import Namespace
from difflib import get_close_matches
from typing import Any, get_args

from fairseq.dataclass.configs import GenerationConfig
from fairseq.optim.lr_scheduler.manual_lr_scheduler import ManualSchedule
from fairseq.registry import REGISTRIES

from ...errors import InputError, flag_of
from .. import generation_rules
from ..fairseq_flags import SchedulerFlags, TaskFlags
from ..number_rules import collect, refuse
from ..reading import read

# Task options that contain options of generation, as a dictionary in JSON.
_OF_GENERATION = ("eval_bleu_args", "generation_args", "eval_args")
_TYPES = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}


def check_task(task: Any) -> None:
    """Refuse a dictionary in a task's options if fairseq cannot use it, or would ignore one of its keys."""
    flags = read(TaskFlags, task)
    found: list[str] = []
    for name in _OF_GENERATION:
        with collect(found):
            if isinstance(text := vars(flags)[name], str):
                _check_generation(flag_of(name), text)
    with collect(found):
        _check_tokenizer(flags)
    refuse(found)


def _check_generation(flag: str, text: str) -> None:
    given = read_json(flag, text)
    known = {field.name: field.type for field in dataclasses.fields(GenerationConfig)}
    defaults = {field.name: field.default for field in dataclasses.fields(GenerationConfig)}
    for key, value in given.items():
        refuse_unknown(flag, key, known, "not an option of fairseq's generation")
        if value is None and defaults[key] is None:
            continue
        kind = next((kind for kind in (known[key], *get_args(known[key])) if kind in _TYPES), None)
        if kind and not _has_type(value, kind):
            raise InputError(f"{flag}: {key} {json.dumps(value)}: must be {_TYPES[kind]}")
    try:
        generation_rules.check(Namespace(**defaults | given))
    except InputError as error:
        raise InputError(f"{flag} {text}: {error}") from error


def _has_type(value: Any, kind: type) -> bool:
    if isinstance(value, bool) or kind is bool:
        return isinstance(value, bool) and kind is bool
    return isinstance(value, (int, float) if kind is float else kind)


def _check_tokenizer(flags: TaskFlags) -> None:
    chosen, text = flags.eval_bleu_detok, flags.eval_bleu_detok_args
    given = read_json("--eval-bleu-detok-args", text) if isinstance(text, str) else {}
    if not isinstance(chosen, str) or not flags.eval_bleu:
        return
    tokenizers = REGISTRIES["tokenizer"]
    if chosen not in tokenizers["registry"]:
        raise InputError(f"--eval-bleu-detok {chosen}: choose from {', '.join(sorted(tokenizers['registry']))}")
    dataclass = tokenizers["dataclass_registry"].get(chosen)
    if dataclass is not None:
        known = [field.name for field in dataclasses.fields(dataclass) if not field.name.startswith("_")]
        for key in given:
            refuse_unknown("--eval-bleu-detok-args", key, known, f"not an option of --eval-bleu-detok {chosen}")


def read_json(flag: str, text: str) -> dict[str, Any]:
    """Parse ``text``, the JSON dictionary in a flag.

    Raises:
        InputError: the text is not a dictionary in JSON.
    """
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(
            f"{flag} {text!r}: is not JSON ({' '.join(str(error).split())}); an example is '{{\"beam\": 4}}'"
        ) from error
    if not isinstance(found, dict):
        raise InputError(f"{flag} {text!r}: must be a dictionary, such as '{{\"beam\": 4}}'")
    return found


def read_python(flag: str, text: str) -> dict[str, Any]:
    """Parse ``text``, the Python dictionary in a flag.

    Raises:
        InputError: the text is not a dictionary with text keys.
    """
    try:
        found = ast.literal_eval(text)
        hash(tuple(found))
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        found = None
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
        raise InputError(f"{flag} {text!r}: must be a Python dictionary, such as \"{{'dropout': 0.1}}\"")
    return found


def refuse_unknown(flag: str, key: str, known: Any, what: str) -> None:
    """Refuse an unknown key. The message suggests a known key with a similar name, if there is one.

    Raises:
        InputError: ``key`` is not one of ``known``.
    """
    if key not in known:
        like = get_close_matches(key, list(known), n=1)
        raise InputError(f"{flag}: {key!r}: {what}{f'; did you mean {like[0]!r}?' if like else ''}")


def check_manual_rates(scheduler: Any) -> None:
    """Refuse learning rates of ``--lr-scheduler manual`` that cannot be parsed, are negative or are not finite."""
    found = []
    for name, text in vars(read(SchedulerFlags, scheduler)).items():
        if not isinstance(text, str):
            continue
        try:
            rates = ManualSchedule.parse_manuallr_args(None, text)
            usable = all(0 <= rate < float("inf") for rate in rates.values())
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            usable = False
        if not usable:
            found.append(
                f"{flag_of(name)} {text!r}: must be a dictionary of rates, such as \"{{'1-3': 0.1, '4': 0.05}}\""
            )
    refuse(found)
