"""Read, compare and search the configuration that fairseq-train prints at its start."""

import ast
import difflib
import json
import re

from ...errors import InputError, printable

# Keys in which the runs of an arm may differ, besides seeds: paths, the format of the log, and the use of the machine.
_NOT_THE_EXPERIMENT = (
    "save_dir log_file log_format log_interval no_progress_bar tensorboard_logdir wandb_project aim_repo aim_run_hash"
    " user_dir plasma_path results_path distributed_init_method distributed_port device_id num_workers"
).split()
# A string without a closing quote extends to the end. Otherwise each quote would start another search to the end: quadratic time.
_TEXT_OR_OBJECT = re.compile(r"""('(?:\\.|[^'\\])*(?:'|\\?\Z)|"(?:\\.|[^"\\])*(?:"|\\?\Z))|<[^<>']*>""")
# Characters of a configuration. fairseq prints about 20,000.
_LONGEST = 1 << 20
_LARGEST = 1 << 64  # larger integers become text, because Python refuses to print integers with thousands of digits


def parse(text: str) -> dict:
    """Parse a configuration in the form in which fairseq prints it. Return nested dictionaries. No code is executed.

    Values without quotes (``'activation_fn': relu``) become strings. ``Namespace(a=1)``, the form of old options, becomes a dictionary.
    Objects, printed as ``<...>``, become None.

    Raises:
        ValueError: the text is not a printed configuration, or is too long.
    """
    if len(text) > _LONGEST:
        raise ValueError(f"a printed configuration of {len(text):,} characters")
    try:
        tree = ast.parse(_TEXT_OR_OBJECT.sub(lambda found: found[1] or "None", text.strip()), mode="eval").body
        if isinstance(tree, ast.Dict):
            return _value(tree)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        pass
    raise ValueError(f"not a printed configuration: {text[:40]}")


def _value(node):
    if isinstance(node, ast.Dict):
        if None in node.keys:
            raise ValueError("**{...} is not a printed configuration")
        return {_value(key): _value(value) for key, value in zip(node.keys, node.values)}
    if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        return [_value(item) for item in node.elts]
    if isinstance(node, ast.Call):
        return {word.arg: _value(word.value) for word in node.keywords}
    if isinstance(node, ast.Constant):
        return node.value if not isinstance(node.value, int) or node.value < _LARGEST else f"{node.value:#x}"
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand)
    return ast.unparse(node)


def flatten(configuration: dict, prefix: str = "") -> dict[str, object]:
    """Turn ``{"model": {"dropout": 0.1}}`` into ``{"model.dropout": 0.1}``. Lists become text."""
    flat: dict[str, object] = {}
    for key, value in configuration.items():
        name = printable(f"{prefix}{key}")
        if isinstance(value, dict):
            flat |= flatten(value, f"{name}.")
        else:
            flat[name] = printable(value) if isinstance(value, (str, list)) else value
    return flat


def experiment(flat: dict[str, object], without=()) -> dict[str, object]:
    """Return the settings that must be equal within an arm. Seeds, ``_NOT_THE_EXPERIMENT`` and the keys in ``without`` may differ.

    fairseq prints some flags in several groups, such as optimization.lr and model.lr. A key in ``without`` excludes the flag in all groups.
    """
    excluded = {key.rpartition(".")[2] for key in without if key}

    def matters(name):
        leaf = name.rpartition(".")[2]
        return not (leaf in _NOT_THE_EXPERIMENT or leaf.endswith("seed") or leaf in excluded)

    return {name: value for name, value in flat.items() if matters(name)}


def without_seed(value: object, seed: int | None) -> object:
    """Remove the seed of a run from the names in a path, so that ``lm-1/best.pt`` of seed 1 equals ``lm-2/best.pt`` of seed 2."""
    if not isinstance(value, str) or "/" not in value:
        return value
    return re.sub(rf"(?<=[-_]){seed}(?=[/.]|$)", "", value)


def same(value, other) -> bool:
    """Return whether two values of a flag are equal as text or as JSON. In JSON, spaces and the order of keys do not matter."""
    try:
        return str(value) == str(other) or json.loads(value) == json.loads(other)
    except (TypeError, ValueError, RecursionError):
        return False


def setting(flat: dict[str, object], key: str) -> object:
    """Return the value of a key. If the value is a list of one number, return the number. fairseq logs --lr as a list such as "[0.001]"."""
    value = flat.get(key)
    listed = re.fullmatch(r"\[([\d.]{1,20}(?:e[-+]?\d{1,3})?)\]", value) if isinstance(value, str) else None
    return float(listed[1]) if listed else value


def is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def in_order(value) -> tuple:
    """Return a sort key for values of a flag. Numbers come first, in ascending order, then texts."""
    return (0, value, "") if is_number(value) else (1, 0, str(value))


def find_key(name: str, configurations: list[dict[str, object]], flag: str) -> str:
    """Return the full name of a key: ``model.mask_keep_ratio`` for ``mask_keep_ratio``, ``--mask-keep-ratio`` or ``keep_ratio``.

    Args:
        name: full name, name without the group, or end of the name.
        configurations: the flat configurations of all runs.
        flag: the option that contains ``name``, for the error message.

    Raises:
        InputError: no configuration has a matching key, or several different keys match.
    """
    wanted = name.lstrip("-").replace("-", "_")
    keys = list(dict.fromkeys(key for flat in configurations for key in flat))
    for fits in (
        lambda key: key == wanted,
        lambda key: key.rpartition(".")[2] == wanted,
        lambda key: key.rpartition(".")[2].endswith(f"_{wanted}"),
    ):
        # Copies of a flag in several groups (model.dropout, task.dropout) have the same values. They count as one match.
        found = {tuple(str(flat.get(key)) for flat in configurations): key for key in reversed(keys) if fits(key)}
        if len(found) == 1:
            return found.popitem()[1]
        if found:
            raise InputError(
                f"{flag} {name}: matches several keys; write one of them in full: {', '.join(sorted(found.values()))}"
            )
    near = difflib.get_close_matches(wanted, {key.rpartition(".")[2] for key in keys}, n=5, cutoff=0.4)
    hint = f"; similar names: {', '.join(near)}" if near else "; the logs contain no configuration" * (not keys)
    raise InputError(f"{flag} {name}: the configurations of the runs do not have this key{hint}")
