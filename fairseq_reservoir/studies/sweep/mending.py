"""Continue runs after a change of the grid file, if the change affects nothing that was trained."""

import os
from pathlib import Path

from ...files import read_text
from ..report.log_reader import lines_of_log, read_record
from .steps import Step, commands_in, make_steps, without_variables

# These programs only read a model. They can be repeated with other flags.
_REPEATABLE = (
    "fairseq-generate",
    "fairseq-validate",
    "fairseq-eval-lm",
    "fairseq-interactive",
    "fairseq-score",
    "fairseq-reservoir",
)
_OWN_FILES = ("command", "state", "lock", "training.lock")
_MOST = 1 << 26  # a larger log is assumed to be the log of a training


def mended_state(written: str, wanted: str, state: list[str], folder: Path) -> str | None:
    """Return the state with which a run continues after its commands have changed; None if the run cannot continue.

    If the run has reached the first changed command, the run continues with this command. If the run has not reached it yet, the run
    continues with its current command. The run cannot continue if a changed command has trained anything. A changed command has trained
    nothing if it only reads a model, or if it has failed and its log has no updates. If the failed command is the first one of the run, it
    must also have left no files.

    Args:
        written: the commands of the run before the change, as in the file ``command``.
        wanted: the commands of the changed grid file, in the same form.
        state: words of the file ``state``.
        folder: folder of the run.
    """
    old, new = commands_in(written), commands_in(wanted)
    if not old or not new:
        return None
    same = next((i for i, pair in enumerate(zip(old, new)) if pair[0] != pair[1]), min(len(old), len(new)))
    steps, wanted_steps = (make_steps([without_variables(words) for words in each], folder) for each in (old, new))
    names = [step.name for step in steps]
    reached = len(old)  # number of the first command that has not ended well
    if state[0] == "waiting":
        reached = 0
    elif state[0] != "done" and state[1] in names:
        reached = names.index(state[1])
    for number in range(same, min(reached + 1, len(old))):
        if not _is_repeatable(steps[number], number == 0, number < reached, folder, steps):
            return None
    if reached < same:
        return " ".join(state)
    if same == len(new):
        return "done"
    return f"running {wanted_steps[same].name}" if same else "waiting"


def _is_repeatable(step: Step, is_first: bool, has_succeeded: bool, folder: Path, steps) -> bool:
    """Return whether a step has trained nothing and can therefore run again with different flags."""
    if Path(step.words[0]).name in _REPEATABLE:
        return True
    if has_succeeded or _has_updates(step.log):
        return False
    own = {*_OWN_FILES, *(other.log.name for other in steps)}
    try:
        return not is_first or all(name in own or name.endswith(".tmp") for name in os.listdir(folder))
    except OSError:
        return False


def _has_updates(log):
    """Return whether a log contains a record with updates of a training. Return True for an existing log that cannot be read."""
    try:
        return any(read_record(line) for line in lines_of_log(read_text(log, _MOST)))
    except FileNotFoundError:
        return False
    except OSError:
        return True
