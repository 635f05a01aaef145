"""Load a checkpoint into a trainer. If the checkpoint does not fit the model, optimizer or criterion, the error is one line."""

import ast
import contextlib
import functools
import re
import shlex

import torch
from fairseq.optim import FairseqOptimizer

from ..errors import InputError, flag_of
from ..freezing.description import Resumed, refuse_change, resuming
from ..freezing.freeze_skip import PREFIX, refuse_removed_flag
from ..options.fairseq_flags import choice_of

SAME_FLAGS = "give the flags with which it was trained"
SAME_DICTIONARIES = "the dictionaries differ; give the DATA, the languages and the task with which it was trained"


@contextlib.contextmanager
def resuming_from(filename: str, save_dir: str, reset_optimizer: bool, optimizer_overrides: dict | None):
    """Context in which a checkpoint is loaded: set ``freezing.description.resuming``, and shorten errors of torch and fairseq.

    Raises:
        InputError: the checkpoint belongs to another optimizer, criterion or model.
    """
    token = resuming.set(None if reset_optimizer else Resumed(filename, save_dir, optimizer_overrides))
    try:
        yield
    except AssertionError as error:
        if "--reset-optimizer" not in str(error):
            raise
        raise InputError(f"--restore-file {filename}: {error}") from error
    except Exception as error:
        # fairseq raises "please ensure that the architectures match" while it handles torch's exception.
        difference = _difference(str(error.__context__))
        if difference is None:
            raise
        raise InputError(f"{filename}: {difference}") from error
    finally:
        resuming.reset(token)


def _difference(message):
    """Shorten torch's ``load_state_dict`` error to one line with the first tensor, the number of other tensors, and the flags to give."""
    if not message.startswith("Error(s) in loading state_dict"):
        return None
    sizes = re.findall(r"size mismatch for (\S+): .*?\((\[.*?\])\) from checkpoint, .*?\((\[.*?\])\)", message)
    if sizes:
        (name, saved, own), others = sizes[0], len(sizes) - 1
        more = f", and {others} more {'tensor differs' if others == 1 else 'tensors differ'} in shape" if others else ""
        advice = SAME_DICTIONARIES if _is_of_dictionary(sizes) else SAME_FLAGS
        return f"its {name} has the shape {saved}, but {own} in the model{more}; {advice}"
    for text, kind in (("does not have {}", "Missing"), ("has {}, which this model does not have", "Unexpected")):
        found = re.search(rf'{kind} key\(s\) in state_dict: "([^"]*)"((?:, "[^"]*")*)', message)
        if found:
            others = found[2].count(", ")
            names = f"{found[1]} and {others} more" if others else found[1]
            return f"{text.format(names)}; {SAME_FLAGS}"
    return None


def _is_of_dictionary(sizes):
    """Whether the shapes differ only in the size of the dictionary, which is the number of rows of embeddings and output projections."""
    rows_only = all(ast.literal_eval(saved)[1:] == ast.literal_eval(own)[1:] for _, saved, own in sizes)
    names = [name for name, *_ in sizes]
    return (
        rows_only and any("embed_tokens" in name for name in names) and not any("positions" in name for name in names)
    )


def check_loaded_state(trainer) -> None:
    """Make a trainer's optimizer refuse a saved state that belongs to other parameters. Call this whenever the optimizer is built.

    torch's own error names only parameter groups. With the flat buffer of fp16, torch raises this error only after the first update.
    """
    for group, optimizer in innermost(trainer._optimizer):
        check = functools.partial(_refuse_other_state, optimizer, group)
        optimizer.optimizer.register_load_state_dict_pre_hook(check)


def innermost(optimizer, group: str | None = None) -> list:
    """Return the optimizers inside fairseq's wrappers as pairs (group, optimizer).

    Each optimizer in a composite optimizer has its own group. For any other optimizer, the argument ``group`` is returned.
    """
    for name in ("fp32_optimizer", "wrapped_optimizer", "_optimizer"):
        inner = getattr(optimizer, name, None)
        if isinstance(inner, FairseqOptimizer):
            return innermost(inner, group)
    if hasattr(optimizer, "optimizers"):
        return [found for name, inner in optimizer.optimizers.items() for found in innermost(inner, name)]
    return [(group, optimizer)]


def _refuse_other_state(optimizer, group, _, state_dict):
    resumed = resuming.get()
    if state_dict.get(PREFIX):
        _refuse_to_drop_schedule(optimizer, state_dict[PREFIX])
    overrides = (resumed.optimizer_overrides if resumed else None) or {}
    for key in overrides if group is None else overrides.get(group) or ():
        if all(key not in options for options in optimizer.param_groups):
            raise InputError(
                f"--optimizer-overrides: {key!r} is not an option of --optimizer {_name_of(optimizer)}; choose from"
                f" {', '.join(sorted(optimizer.param_groups[0].keys() - {'params'}))}"
            )
    if resumed and not _fits(state_dict, optimizer.optimizer.param_groups):
        elsewhere = ", and give another --save-dir" if resumed.save_dir_has_a_checkpoint else ""
        raise InputError(
            f"--restore-file {resumed.file}: its optimizer state is for different parameters. To continue without this state, add "
            f"--reset-optimizer. To start a new training, replace --restore-file with --finetune-from-model {resumed.file}{elsewhere}"
        )


def _refuse_to_drop_schedule(optimizer, schedule):
    """Refuse to load a state with a freeze schedule into an optimizer without one.

    fairseq compares only the class names of the two optimizers or, in half precision, of their wrappers.
    """
    refuse_removed_flag(schedule)
    name = _name_of(optimizer)
    words = [word for flag, value in schedule.items() if flag != "seed" for word in (flag_of(flag), str(value))]
    refuse_change("--optimizer", name, f"{PREFIX}_{name} {shlex.join(words)}", can_reset=True)


def _name_of(optimizer):
    options = getattr(optimizer, "cfg", None) or optimizer.args
    return choice_of(options) or options.optimizer


def _fits(state_dict, groups):
    """Whether a state has as many parameters as ``groups``, and no tensor larger than its parameter.

    Tensors may be smaller, because Adafactor stores factored moments.
    """
    saved = [i for group in state_dict["param_groups"] for i in group["params"]]
    own = [parameter for group in groups for parameter in group["params"]]
    if len(saved) != len(own):
        return False
    states = (state_dict["state"].get(i, {}) for i in saved)
    return all(
        value.numel() <= p.numel()
        for p, state in zip(own, states)
        for value in state.values()
        if isinstance(value, torch.Tensor)
    )
