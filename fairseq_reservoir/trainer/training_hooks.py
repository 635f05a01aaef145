"""Parts of the trainer: print the slot table, refuse checkpoints that do not fit, report NaN scores."""

import ast
import contextlib
import logging
import re
import shlex

import torch

from ..errors import InputError, flag_of
from ..freezing.description import Resumed, refuse_change, resuming
from ..freezing.freeze_skip import LEARNED, PREFIX
from ..masks.masked_weight import nan_scores, refuse_moving_masks
from ..options.component_options import ComponentOptions
from ..options.fairseq_flags import choice_of
from ..options.reading import read
from ..plan.slot_table import refuse_all_frozen

logger = logging.getLogger(__name__)
SAME_FLAGS = "give the flags it was trained with"
SAME_WORDS = "give the DATA, languages and task it was trained with, and so its dictionaries"


def refuse_and_print(trainer) -> None:
    """Print the slot table of the trainer's model.

    Raises:
        InputError: no parameter of the model is trained, or a frozen mask would move.
    """
    model, flags = trainer.get_model(), read(ComponentOptions, trainer.cfg.model)
    table = getattr(model, "slot_table", None)
    if table is not None and not any(parameter.requires_grad for parameter in model.parameters()):
        # A RoBERTa may be frozen whole if its task adds a head, and this task has added none.
        refuse_all_frozen(flags.freeze, flags.freeze_except)
    refuse_moving_masks(model, f"--freeze {flags.freeze}")
    if table is not None:
        logger.info("what is trained and what is frozen:\n%s", table)


@contextlib.contextmanager
def resuming_from(filename: str, save_dir: str, reset_optimizer: bool):
    """While a checkpoint is loaded: ``freezing.description.resuming`` is set, and an error of a checkpoint that does not fit is one line.

    Raises:
        InputError: the checkpoint is of another optimizer, criterion or model.
    """
    token = resuming.set(None if reset_optimizer else Resumed(filename, save_dir))
    try:
        yield
    except AssertionError as error:
        if "--reset-optimizer" not in str(error):
            raise
        raise InputError(f"--restore-file {filename}: {error}") from error
    except Exception as error:
        # Around it fairseq has put that "the architectures" have to "match".
        difference = _difference(str(error.__context__))
        if difference is None:
            raise
        raise InputError(f"{filename}: {difference}") from error
    finally:
        resuming.reset(token)


def _difference(answer):
    """What torch says of a state dict that does not fit, in a line: of the first tensor, how many others there are, and what to give."""
    if not answer.startswith("Error(s) in loading state_dict"):
        return None
    sizes = re.findall(r"size mismatch for (\S+): .*?\((\[.*?\])\) from checkpoint, .*?\((\[.*?\])\)", answer)
    if sizes:
        (name, saved, own), others = sizes[0], len(sizes) - 1
        more = f", and {others} more {'has another' if others == 1 else 'have others'}" if others else ""
        return f"its {name} has the shape {saved}, not {own}{more}; {SAME_WORDS if _of_words(sizes) else SAME_FLAGS}"
    for said, kind in (("has no", "Missing"), ("is of a model with", "Unexpected")):
        found = re.search(rf'{kind} key\(s\) in state_dict: "([^"]*)"((?:, "[^"]*")*)', answer)
        if found:
            others = found[2].count(", ")
            return f"{said} {found[1]}{f' and {others} more' if others else ''}; {SAME_FLAGS}"
    return None


def _of_words(sizes):
    """Whether what differs is the number of words: rows of token vectors, and of what gives a score to each word, whatever its name."""
    rows_only = all(ast.literal_eval(saved)[1:] == ast.literal_eval(own)[1:] for _, saved, own in sizes)
    names = [name for name, *_ in sizes]
    return (
        rows_only and any("embed_tokens" in name for name in names) and not any("positions" in name for name in names)
    )


def refuse_state_of_others(load_state_dict, optimizer, state_dict, optimizer_overrides=None):
    """Refuses an optimizer state that is not of the parameters trained here.

    torch would only speak of parameter groups, and with fp16's flat buffer would fail only after the first update.
    """
    if state_dict.get(PREFIX):
        _refuse_to_drop_schedule(optimizer, state_dict[PREFIX])
    # The overrides of a composite optimizer are named after its groups.
    for key in () if hasattr(optimizer, "optimizers") else optimizer_overrides or ():
        if all(key not in group for group in optimizer.param_groups):
            raise InputError(
                f"--optimizer-overrides: {key!r}: no option of --optimizer {_name_of(optimizer)}; choose from"
                f" {', '.join(sorted(optimizer.param_groups[0].keys() - {'params'}))}"
            )
    resumed = resuming.get()
    if resumed and not _fits(state_dict, optimizer.optimizer.param_groups):
        elsewhere = " with another --save-dir" if resumed.save_dir_has_a_checkpoint else ""
        raise InputError(
            f"--restore-file {resumed.file}: its optimizer state is not that of what is trained here; --reset-optimizer goes on "
            f"without it, or --finetune-from-model {resumed.file} in place of --restore-file{elsewhere} starts a new training"
        )
    return load_state_dict(optimizer, state_dict, optimizer_overrides)


def _refuse_to_drop_schedule(optimizer, schedule):
    """In half precision fairseq compares the names of its wrappers; ``FreezeSkip`` itself takes the schedule out of the state."""
    name = _name_of(optimizer)
    flags = [
        (flag_of(flag), *(() if value is True else (str(value),)))
        for flag, value in schedule.items()
        if flag not in ("seed", LEARNED)
    ]
    refuse_change(
        "--optimizer", name, f"{PREFIX}_{name} {shlex.join(word for flag in flags for word in flag)}", can_reset=True
    )


def _name_of(optimizer):
    options = getattr(optimizer, "cfg", None) or optimizer.args
    return choice_of(options) or options.optimizer


def _fits(state_dict, groups):
    """Whether there are as many parameters, none of which has a state larger than itself; factored state is smaller."""
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


def report_nan_scores(trainer) -> None:
    """Log the masked modules with a NaN score. A NaN score has a rank like any other, so that a mask does not show it.

    This synchronises with the device.
    """
    names = nan_scores(trainer.get_model())
    if names:
        logger.error("update %d: NaN in the scores of %s", trainer.get_num_updates(), ", ".join(names))
