"""A repair of sentences with more tokens than ``--max-source-positions`` or ``--max-target-positions``."""

import logging

import numpy as np
from fairseq import utils
from fairseq.data import LanguagePairDataset
from fairseq.tasks import FairseqTask

from ..errors import InputError
from .error_report import fairseq_command
from .interactive import current_session, follow_sessions
from .repair import repair, wrap

logger = logging.getLogger(__name__)

SKIP = "--skip-invalid-size-inputs-valid-test"
_SIDES = ("source", "target")


@repair("long-sentences")
def name_long_sentences():
    """Name in one line the sentences that are too long for a model (fairseq #257).

    fairseq raises an exception with the number of one sentence: in training at the end of the first epoch, in
    ``fairseq-interactive`` at a long line, which ends the session. Now a training checks its validation data when it
    starts. ``fairseq-interactive`` leaves the line out with a warning, translates the others, and ends with an error that
    has the numbers of all such lines. With ``--skip-invalid-size-inputs-valid-test`` it ends without an error, as before. Training
    data are left out with a warning, as before.
    """

    def filter_indices_by_size(original, task, indices, dataset, max_positions=None, ignore_invalid_inputs=False):
        session = current_session()
        if session is not None and _name(task, dataset) is None:
            return _leave_out_lines(session, indices, dataset, max_positions, ignore_invalid_inputs)
        if ignore_invalid_inputs:
            return original(task, indices, dataset, max_positions, ignore_invalid_inputs)
        kept, left_out = dataset.filter_indices_by_size(indices, max_positions)
        if len(left_out):
            count = f"{len(left_out):,} of {len(indices):,} sentences"
            lengths = _too_long(dataset, left_out, max_positions)
            raise InputError(
                f"{_split(task, dataset)}: {count} are too long: the longest {lengths}; {SKIP} leaves them out"
            )
        return kept

    wrap(FairseqTask, "filter_indices_by_size", filter_indices_by_size)
    follow_sessions()


def check_validation(trainer) -> None:
    """Refuse validation data with sentences that are too long, before a training makes its first update.

    Raises:
        InputError: there are such sentences, and they are not to be left out.
    """
    task = trainer.task
    if trainer.cfg.dataset.skip_invalid_size_inputs_valid_test:
        return
    limits = utils.resolve_max_positions(task.max_positions(), trainer.get_model().max_positions())
    for split, dataset in task.datasets.items():
        if type(dataset) is LanguagePairDataset and split != trainer.cfg.dataset.train_subset:
            task.filter_indices_by_size(np.arange(len(dataset)), dataset, limits)


def _leave_out_lines(session, indices, dataset, max_positions, quietly):
    kept, left_out = dataset.filter_indices_by_size(indices, max_positions)
    for index in sorted(left_out):
        number = session.first + int(index)
        lengths = _too_long(dataset, [index], max_positions)
        logger.warning("line %d is not translated: it %s", number, lengths)
        if not quietly:
            session.left_out.append(number)
    return kept


def _too_long(dataset, left_out, limits):
    """As in ``has 9 source tokens with the end of the sentence, and the model takes 5 (--max-source-positions)``."""
    sizes = [dataset.size(index) for index in left_out]
    if isinstance(limits, dict):
        return f"has {sizes[0]} tokens, and the model takes {limits}"
    if not isinstance(limits, (tuple, list)):
        return f"has {max(np.max(size) for size in sizes):,} tokens, and the model takes {limits:,}"
    found = []
    for side, limit, lengths in zip(_SIDES, limits, zip(*(np.broadcast_to(size, len(limits)) for size in sizes))):
        if limit is not None and max(lengths) > limit:
            end = "" if found else " with the end of the sentence"
            found.append(f"{max(lengths):,} {side} tokens{end}, and the model takes {limit:,} (--max-{side}-positions)")
    return "has " + "; ".join(found)


def _split(task, dataset):
    name = _name(task, dataset)
    if name is None:
        return "DATA"
    if fairseq_command() in ("fairseq-generate", "fairseq-eval-lm"):
        return f"--gen-subset {name}"
    return f"--valid-subset {name}"


def _name(task, dataset):
    """The split that a dataset is of, or None."""
    return next((name for name, of_split in task.datasets.items() if of_split is dataset), None)
