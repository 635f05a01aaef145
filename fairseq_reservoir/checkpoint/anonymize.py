"""Remove paths, hosts and project names from an export's configuration and SentencePiece model.

fairseq's checkpoints contain such paths and names, but an export may be published.
"""

import dataclasses
import functools
import re
from collections.abc import Callable, Iterator
from typing import Any

from fairseq.dataclass.configs import FairseqConfig
from fairseq.registry import REGISTRIES
from fairseq.tasks import TASK_DATACLASS_REGISTRY
from omegaconf import OmegaConf

LEFT_OUT = "left-out"
# Options with a path, a host or a project name, even if the value has no slash.
_KEY = re.compile(
    r".*(_path|_dir|_file|_logdir|_codes|_project|_repo|_run_hash|_model|_init_method|_from|_vocab|_merges|_json"
    r"|(?<!pipeline)_checkpoint)|data|path"
)
_PATH = re.compile(r"[/~]|\.{1,2}[/\\]|[A-Za-z]:[/\\]|\w+://")
# Option groups from which the model is built. In other groups, any text with a slash counts as a path.
_BUILT_FROM = ("model",)
# Fields with file names in a SentencePiece model, by the field number of their message. In the TrainerSpec (2) they are input,
# model_prefix and seed_sentencepieces_file, and in both NormalizerSpecs (3 and 5) normalization_rule_tsv.
_SPECS = {2: (1, 2, 54), 3: (6,), 5: (6,)}
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


def anonymized(config: dict[str, Any]) -> dict[str, Any]:
    """Replace paths, hosts and names in an export's configuration by fairseq's defaults.

    In options of the model, such as ``encoder_embed_path``, the replacement is ``left-out``. A default would hide that the option was set.
    Freezing may depend on whether the option is set.
    """
    return {group: _cleaned(group, options) for group, options in config.items()}


def identifying_options(config: dict[str, Any]) -> list[tuple[str, str]]:
    """Return (name, value) of each option whose value is a path, a host or a project name. Names include the group: ``task.data``."""
    return [
        (f"{group}.{name}", value)
        for group, options in config.items()
        for name, value in _entries(options)
        if _is_identifying(group, name, value) and value not in (_default(group, name, options), LEFT_OUT, "")
    ]


def _cleaned(group: str, options: Any) -> Any:
    if not isinstance(options, dict):
        return options
    kept = {
        name: _without(value, group, name, options) if _is_identifying(group, name, value) else value
        for name, value in _entries(options)
    }
    return kept if _names(options) is options else {"__namespace__": kept}


def _without(value: str, group: str, name: str, options: dict[str, Any]) -> str | None:
    default: str | None = _default(group, name, options)
    if not value or value == default:
        return value
    if group in _BUILT_FROM:
        return LEFT_OUT
    # These groups do not get their default, because a default path could name another file on the reader's machine.
    return "" if group in ("task", "bpe", "tokenizer") else default


def _entries(options: Any) -> list[tuple[str, Any]]:
    return list(_names(options).items()) if isinstance(options, dict) else []


def _names(options: dict[str, Any]) -> dict[str, Any]:
    """Return the options of a group. Some groups store their options under the key ``__namespace__``."""
    namespace = options.get("__namespace__")
    return namespace if isinstance(namespace, dict) else options


def _is_identifying(group: str, name: str, value: Any) -> bool:
    if not isinstance(value, str) or name == "_name":
        return False
    return bool(_KEY.fullmatch(name) or _PATH.match(value) or group not in _BUILT_FROM and "/" in value)


@functools.cache
def _defaults() -> Any:
    return OmegaConf.to_container(OmegaConf.structured(FairseqConfig()), resolve=False)


def _default(group: str, name: str, options: dict[str, Any]) -> Any:
    """Return fairseq's default of an option; None for an unknown option."""
    common = _defaults().get(group)
    values = [common.get(name)] if isinstance(common, dict) else []
    values += [
        field.default for made in _chosen(group, options) for field in dataclasses.fields(made) if field.name == name
    ]
    return next((text for text in values if isinstance(text, str) and "${" not in text and text != "???"), None)


def _chosen(group: str, options: dict[str, Any]) -> Iterator[Any]:
    """Yield the dataclasses of the components that a group of options selects. For example, ``bpe=gpt2`` selects GPT-2's BPE.

    In old checkpoints, a single namespace contains all options, and can select a component from each registry.
    """
    registries = {name: registry["dataclass_registry"] for name, registry in REGISTRIES.items()}
    registries["task"] = TASK_DATACLASS_REGISTRY
    choices = {group: options.get("_name"), **_names(options)}
    for name, registry in registries.items():
        choice = choices.get(name)
        if isinstance(choice, str) and dataclasses.is_dataclass(registry.get(choice)):
            yield registry[choice]


def names_in_sentencepiece(model: bytes) -> list[str]:
    """Return the file names stored in a SentencePiece model, such as the name of its training text."""
    found: list[str] = []
    _rewritten(model, found.append)
    return found


def sentencepiece_without_names(model: bytes) -> bytes:
    """Return a SentencePiece model without its file names. Without them, the model splits text as before.

    Bytes that are not a SentencePiece model are returned unchanged.
    """
    return _rewritten(model, lambda name: None)


def _rewritten(model: bytes, take: Callable[[str], object]) -> bytes:
    """Return a SentencePiece model without file names, and call ``take`` with each removed name."""
    try:
        written = b""
        for number, field, content in _fields(model):
            if number in _SPECS and content is not None:
                kept = b""
                for part, whole, value in _fields(content):
                    if part in _SPECS[number] and value is not None:
                        take(value.decode(errors="replace"))
                    else:
                        kept += whole
                field = _tag(number) + _as_varint(len(kept)) + kept if kept != content else field
            written += field
        return written
    except (IndexError, ValueError):
        return model


def _fields(message: bytes) -> Iterator[tuple[int, bytes, bytes | None]]:
    """Yield (field number, bytes of the field, content) for each field of a protocol buffer. The content is None for numeric fields."""
    at = 0
    while at < len(message):
        begin = at
        key, at = _varint(message, at)
        content, kind = None, key & 7
        if kind == _VARINT:
            _, at = _varint(message, at)
        elif kind == _BYTES:
            length, at = _varint(message, at)
            content, at = message[at : at + length], at + length
        elif kind in (_FIXED64, _FIXED32):
            at += 8 if kind == _FIXED64 else 4
        else:
            raise ValueError(f"wire type {kind}")
        if at > len(message):
            raise IndexError(at)
        yield key >> 3, message[begin:at], content


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def _as_varint(value: int) -> bytes:
    written = b""
    while value > 127:
        written, value = written + bytes([value & 127 | 128]), value >> 7
    return written + bytes([value])


def _tag(number: int) -> bytes:
    return _as_varint(number << 3 | _BYTES)
